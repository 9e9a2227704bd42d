// Package wakeplan says which tagged memory should be awake when, so that the most that is
// awake at any moment is least.
//
// A job that sleeps and wakes runs through stages over and over: train, sync, roll out. Each
// stage needs some tags; between two stages others can be paused and resumed. A [Cycle] is the
// stages in order, with what each tag and everything outside of tags takes in each.
//
//	           ┌ train ┐┌ sync ┐┌ rollout ┐┌ train ┐
//	trainer    ███████████████            ████████
//	rollout            ··················
//	cache                      ··········
//
// Three ways to run a cycle, each a [Plan]:
//
//	resident  nothing ever sleeps
//	at once   what one stage wakes wakes together: as soon as a tag is needed that slept, so
//	          is all that will be needed before that tag sleeps again
//	staged    a tag wakes when a stage needs it
//
// The stages that need a tag must have it, so no plan has a lower peak than staged: it is the
// greatest need of any stage. Pauses come before resumes, so a switch takes no more than
// the stages around it. Where there is room below that peak, what is not needed may as well
// stay awake: staged keeps awake what saves the most copying, then the most memory moved.
//
// The package knows nothing of traces; its sizes are bytes.
package wakeplan
