package recording

import "slices"

// Job is one run of a job: its recording, or those of its nodes.
type Job []Recording

// Jobs puts the recordings of the nodes of one job together: those whose ranks are
// only some of their world, of the same size, and have no rank in common. Any other
// recording is a job by itself.
func Jobs(runs []Recording) []Job {
	var all []Job
	for _, run := range runs {
		at := slices.IndexFunc(all, func(r Job) bool { return r.lacks(run) })
		if at < 0 {
			all = append(all, Job{run})
			continue
		}
		all[at] = append(all[at], run)
	}
	return all
}

// lacks says whether run is of a node that is not in r and belongs to it.
func (r Job) lacks(run Recording) bool {
	ranks, world := worldOf(run)
	if len(ranks) == 0 || len(ranks) >= world {
		return false
	}
	for _, node := range r {
		others, otherWorld := worldOf(node)
		if otherWorld != world || len(others) == 0 {
			return false
		}
		for rank := range others {
			if ranks[rank] {
				return false
			}
		}
	}
	return true
}

// worldOf is the set of ranks in a recording and the greatest size that one of them saw
// of their world.
func worldOf(run Recording) (ranks map[int]bool, world int) {
	ranks = map[int]bool{}
	for _, process := range run.Run.Processes {
		if process.Rank >= 0 {
			ranks[process.Rank] = true
			world = max(world, process.WorldSize)
		}
	}
	return ranks, world
}

// Absent are the ranks of a job's world that none of its recordings has or misses.
func (r Job) Absent() []int {
	absent := r[0].Run.Absent()
	for i := range r[1:] {
		others := r[i+1].Run.Absent()
		absent = slices.DeleteFunc(absent, func(rank int) bool {
			_, found := slices.BinarySearch(others, rank)
			return !found
		})
	}
	return absent
}
