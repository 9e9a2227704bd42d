// Package bfc is memprof's best-fit-with-coalescing allocator: its specification, and a model that
// replays recordings. The allocator in the hook (hooks/capture/bfc/*.c) is its twin in C; given the
// same calls both return the same addresses and sizes. This comment says all that an allocator has
// to do to be a third one. The package knows nothing of traces, devices or commands.
//
// # Terms
//
//	granule         256 bytes. Addresses and sizes of chunks are multiples of it.
//	page            the unit in which the memory maps and unmaps, Memory.Granularity: a power of
//	                two of at least 256 bytes; 2 MiB on a GPU. Pages begin at its multiples.
//	region          a range of addresses that one grant of the memory, or several adjacent ones,
//	                brought. Regions do not overlap.
//	chunk           a part of a region. Chunks tile their region without gaps; each is free or in
//	                use. Between any two calls no two free chunks of a region touch.
//	block           what a request gets: a chunk in use.
//	request         a call of Alloc; size is the bytes it asks for.
//	rounded         size rounded up to a granule.
//	slack           chunk minus rounded.
//	mapped          backed by physical memory. Bytes of a region are mapped when it is granted;
//	                pages of free chunks can be unmapped and mapped again. Blocks are mapped. Bytes
//	                outside of regions are neither mapped nor unmapped.
//	reserved        the bytes of all regions that are mapped; peak reserved is its maximum so far.
//	room            limit minus reserved, or 0 where reserved is more.
//	memory          where regions come from, an interface: a device, a model, or a recording.
//	owner           whoever calls the allocator: the arena of the hook, or a replay.
//	iteration       one step of the job, from 0. EndIteration ends the one under way. "Ended" is
//	                how many have ended, and so the number of the one under way.
//
// All sizes and addresses are unsigned 64-bit integers in bytes; MiB is 2^20. down(x, u) is x
// rounded down to a multiple of u, a power of two; up(x, u) is x rounded up, and where that passes
// 2^64 it is 2^64-u. A range [a, b) has the bytes from a up to but not including b. Two orders are
// used: addresses ascending, and (size, address), which is size ascending and at equal sizes
// address ascending.
//
// # Parameters
//
// They are fixed when an allocator is made:
//
//	limit           bytes that may be mapped at a time; 2^64-1 is no limit
//	headroom        bytes of the device that a growth beyond the request leaves free; 0: any
//	growth          double, needed, pages or whole
//	split           classic or always
//	fraction        a number; if above 0 it sets max slack for the classic split (below)
//	trim            never, iteration or idle. With iteration the allocator notes pages (see
//	                Iterations); all else about it is the owner's.
//	gc              whether idle regions are released before a request fails
//
// Making one fails for growth whole with no limit, for a fraction that is not a number, and for a page
// outside its range. A fraction, gc and growth whole are of replays of requests written by hand; no arena
// of a job has them. Which arena of a job has which values is at the end.
//
//	max slack       split always:                  256
//	                split classic, fraction > 0:   fraction times limit in 64-bit floating point,
//	                                               without its fractional part; at most 2^64-1
//	                split classic otherwise:       128 MiB
//	next region     (state) at first min(2 MiB, up(limit, 256)); with growth whole up(limit, 256)
//
// # Memory
//
// The allocator calls the memory, and only at the places that this comment names, since a recording
// has each call as an event:
//
//	Grow(bytes)            grants up(bytes, page) bytes at an address, all mapped, or refuses
//	Adjoins(bytes)         whether that address would be the end of the last grant; no event
//	Map(addr, bytes)       maps unmapped pages, or refuses
//	Unmap(addr, bytes)     undoes a Map of the same request
//	TryUnmap(addr, bytes)  unmaps pages of free chunks, or refuses and changes nothing
//	Release(addr, bytes)   ends a whole region
//	Free()                 the bytes of the device that nobody has
//
// Elsewhere these are written memory.Grow and so on (but for the last column of the example), since
// the allocator itself has a Free and an Unmap.
//
// A memory coalesces or does not. If it does, a grant that begins where the region before it ends
// (by address) lengthens that region. A grant counts as a refusal unless its bytes are at least
// those asked for and at most room, its address and bytes are multiples of 256, and it neither
// passes 2^64 nor overlaps a region. The allocator does not release such a grant: it makes no call for it.
//
// # Alloc
//
//	Alloc(size):
//	    if size is 0 or above 2^64-256: fail
//	    rounded = up(size, 256)
//	    chunk = search(rounded)
//	    if none: chunk = growAndSearch(rounded)
//	    if none, gc, and collecting is worth it: collect garbage; chunk = growAndSearch(rounded)
//	    if none: fail
//	    hand out the first taken(chunk, rounded) bytes of chunk
//
// A request that fails leaves regions that have grown, the size of the next region, pages that were unmapped, and the
// counts of Pages as they then are; nothing else has changed.
//
//	taken(chunk, rounded):                    # bytes of a free chunk that a request gets
//	    rest = chunk.size - rounded
//	    if rest >= max slack, or in a shortage: return rounded
//	    if split is classic and rest >= rounded: return rounded
//	    return chunk.size
//
// What is not taken stays a free chunk behind the block. Blocks are numbered from 1 in the order in
// which they are handed out, restored ones too; a request that fails takes no number.
//
//	search(rounded):
//	    best = the first free chunk in (size, address) with size >= rounded; if none: none
//	    if no byte of any region is unmapped: return best
//	    if growth is pages: chunk = mostReady(best, rounded); if chunk is not best and mapFor(chunk, reach(chunk)): return chunk
//	    if mapFor(best, reach(best)): return best
//	    for chunk in the free chunks behind best in (size, address):
//	        if all of reach(chunk) is mapped: return chunk
//	    return none
//
// reach(chunk) is the range that the request would get of a chunk, widened to whole pages:
// [down(chunk.addr, page), up(chunk.addr + taken(chunk, rounded), page)). Where regions do not begin or
// end with a page it can pass the region; nothing is unmapped there. So unmapped memory does not decide
// where a block goes, unless mapping it is refused.
//
//	mapFor(chunk, range):
//	    if growth is pages: Pages' mapFor instead
//	    for gap in the maximal unmapped ranges within range, addresses ascending:
//	        if gap.bytes > room, or memory.Map(gap) refuses:
//	            memory.Unmap the gaps mapped by this call, last first; reserved is as before them
//	            return false
//	        reserved += gap.bytes             # peak reserved follows when all are mapped
//	    return true
//
// The reference keeps free chunks in bins, to find the first chunk in (size, address) quickly. Bins
// decide nothing; see Statistics.
//
// # Free
//
// Free(addr) fails unless a block starts at addr. Its chunk becomes free and is joined with the
// free chunks next to it in the region. A block that other streams may still use is the owner's
// affair: it calls Free only when their work is done ("pending" until then).
//
// # Growth
//
//	growAndSearch(rounded), growth double or whole:
//	    available = down(room, 256)
//	    if rounded > available: return none
//	    doubled = false
//	    while next region < rounded: double next region; doubled = true
//	    bytes = keepHeadroom(min(next region, available), rounded)
//	    bytes = fitLimit(bytes, rounded); if it fails: return none
//	    while not grow(bytes):
//	        bytes = backOff(bytes)
//	        if bytes < rounded: return none
//	    if not doubled: double next region
//	    return search(rounded)
//
// Next region is doubled to at most 2^64-256, and keeps its size where the request then fails.
// First requests of 1 MiB lead to regions of 2, 4, 8, 16 MiB; of 4 MiB, to 4, 4, 8, 16.
//
//	keepHeadroom(bytes, wanted):
//	    if headroom is 0 or bytes <= wanted: return bytes       # without a call of memory.Free
//	    free = memory.Free()                  # one call
//	    left = down(free - headroom, page), or 0 if headroom >= free
//	    return max(wanted, min(bytes, left))
//
//	fitLimit(bytes, wanted):                  # the memory rounds up to pages: stay in the limit
//	    fits = down(room, page)
//	    if bytes <= fits: return bytes
//	    if fits >= wanted: return fits, else fail
//
//	backOff(bytes):
//	    less = up(integer part of float32(bytes) * float32(0.9), 256)   # product is a float32, too
//	    return less if less < bytes, else bytes - 256
//
//	growAndSearch(rounded), growth needed or pages:
//	    tail = the last chunk of the region that was granted or lengthened last, if the memory
//	           coalesces, that region was not released since, the chunk is free and smaller
//	           than rounded, and memory.Adjoins(rounded - tail.size); else none
//	    credit = tail.size, or 0                # bytes of the chunk, unmapped ones too
//	    if growth is pages: each growBy below is Pages' payAndGrow
//	    if not growBy(rounded - credit): return none
//	    chunk = search(rounded)
//	    if one is found or credit is 0: return it
//	    # The grant is not adjacent to the tail, or the tail's unmapped part could not be mapped.
//	    if not growBy(rounded): return none
//	    return search(rounded)
//
//	growBy(lack):
//	    available = down(room, 256)
//	    if lack > available: return false
//	    bytes = fitLimit(lack, lack); return false if that fails
//	    return grow(bytes)
//
// Needed and pages leave next region alone, and have no headroom and no back-off.
//
// grow(bytes) calls memory.Grow. The granted range becomes a free chunk of a new region, or of the region
// that it lengthens, where it is joined with a free chunk before it. Reserved rises by the grant.
//
// # Pages
//
// With growth pages a page that no block touches serves any request: it is unmapped
// where it is, and as much is mapped where the request goes. The aim is that the memory maps no more pages than
// blocks have ever touched at a time, and an allowance; refused unmaps, Remap and failed requests can lead to
// more. Grants begin and end at pages; the allocator does not check it. The first 2^28 pages of a region have
//
//	touched   whether a block touches the page, whole or in part
//	used      1 + the iteration in which the last block that touched the page was freed, or lost its slack there
//	          (Shrink); at first 0
//	back      the frame that backed the page last; at first none
//	left      the number of the free by which a block last ceased to touch the page, or of the last free before the page got a
//	          frame that was not its back; at first 0. Each Free and Shrink that succeeds has the next number, from 1
//	registered
//	          how many times Register was called for a range that touches the page, and Deregister was not; at first
//	          0, and never below
//
// and further pages have none of these: they count in more, n, mapped and where pages are counted that are
// unmapped, and in no other count or list below. A frame is a physical page, numbered from 0. It backs one page or
// none. The allocator has
//
//	live      the number of touched pages
//	most      at first 0; raised to live by each block that is handed out or restored
//	filled    the most bytes in use (see Statistics) so far
//	allowance a number from 0 to 40, at first 0; each is a 400th of most
//	moved     how many pages takeOldest has unmapped in this iteration
//	served    how many blocks were handed out or restored in this iteration, and their bytes; at first 0
//	idle      a list of frames, at first empty; a frame in it may back a page again
//
// Frames cost the allocator nothing: no call of the memory names them. An owner that leaves the old mapping of a
// page in place can keep the same account, and has nothing to map when a page gets its back.
//
// Where pages are mapped (by mapFor once all of its gaps are mapped, by a
// grant that counts, by Remap), each gets a frame, in two passes over all of them, addresses ascending. In the
// first, a page whose back backs no page gets that one, and the list of idle frames does not change. In the second,
// for each other page, frames are removed from the end of the list until one was removed that backs no page: the
// page gets that one. If the list becomes empty first, it gets a new frame, with the next number. The frame is now
// its back. (In one pass, a page could get the back of a later one, which would then need that of another.) Where
// pages are unmapped (by TryUnmap, by Unmap of the owner, by Release), addresses ascending, the frame of each backs no
// page from then on, and is appended to the list; if it is in the list already, it keeps its place. A mapFor that
// undoes its own gaps changes no frame. A released region takes used and back of its pages with it.
//
// All divisions are of integers, rounded down. "Pages of tail" are all that the chunk touches, none without a
// tail.
//
// Best fit stays where it has all its frames. Where some of them serve other blocks, one of the next larger chunks
// can have more of its own:
//
//	mostReady(best, rounded):
//	    if rounded < page: return best
//	    least = moves(reach(best)); chosen = best
//	    for chunk in the first 16 free chunks behind best in (size, address), while least > 0 and chunk.size / 3 <= best.size:
//	        if taken(chunk, rounded) <= taken(best, rounded) and moves(reach(chunk)) < least:
//	            chosen = chunk; least = moves(reach(chunk))
//	    return chosen
//
//	moves(range):                         # how many of its pages need another frame than they had last
//	    the number of unmapped pages of range that have no back, or whose back backs a page that is touched,
//	    registered or in range
//
//	mapFor(chunk, range):
//	    if nothing of range is unmapped: return true
//	    fresh = how many pages of range are not touched
//	    if live + fresh > limit / page: return false
//	    released = takePages(range, 0, range, fresh)
//	    if all gaps are mapped, as in Alloc's mapFor: return true
//	    # The gaps mapped so far are unmapped again by now.
//	    if takeOldest(how many pages of range are unmapped, less released, but not below 0, range) is 0: return false
//	    return whether all gaps are mapped now
//
//	payAndGrow(lack, tail):               # growAndSearch calls payAndGrow(rounded - credit, tail) in place of its
//	                                      # first growBy, and payAndGrow(rounded, none) in place of its second
//	    n = up(lack, page) / page
//	    fresh = n + how many pages of tail are not touched
//	    if live + fresh > limit / page: return false
//	    released = takePages(nothing, n, pages of tail, fresh)
//	    if growBy(lack): return true
//	    if takeOldest(n less released, but not below 0, pages of tail) is 0: return false
//	    return growBy(lack)
//
//	takePages(range, more, keep, fresh):
//	    # range: where pages will be mapped; more: how many will be granted; keep: pages not to be unmapped;
//	    # fresh: how many pages, mapped or not, no block touches that the request will
//	    # returns how many pages it unmapped
//	    if the memory does not coalesce: return 0
//	    then = max(most, live + fresh)        # most, if the request is granted
//	    mapped = reserved / page
//	    lack = more + how many pages of range are unmapped
//	    list = empty
//	    for each unmapped page of range, addresses ascending:
//	        q = the page that the back of this page backs, if there is one
//	        if q is not touched, not registered, not in keep and not in list: append it
//	    back = unmapPages(list)
//	    lack -= back, but not below 0
//	    # mapped is from before this unmapping, room from after it.
//	    # Where blocks are small against a page they touch more pages than they fill: then with less slack.
//	    allowed = max(then, min(then + (then * allowance) / 400, (filled + (filled * allowance) / 160) / page))
//	    add = min(max(allowed - mapped, 0), lack, room / page)
//	    return back + takeOldest(lack - add, keep)
//
//	takeOldest(count, keep):              # returns how many it unmapped, and adds them to moved
//	    if the memory does not coalesce: return 0
//	    for age = 3, 2, 1, 0, while fewer than count are unmapped:
//	        candidates = the pages that are mapped, not touched, not registered and not in keep, with
//	                     min(ended + 1 - used, 3) = age; of all regions, addresses descending
//	        unmapPages(the first of candidates, as many as are still to be unmapped)
//	        # A page that the memory refuses is not replaced by another of its age.
//
//	unmapPages(list):                     # returns how many it unmapped
//	    A run starts with the next entry of the list. While the entry after it is the page directly below or
//	    directly above the run, also in another region, the run takes it; any other entry starts the next run.
//	    For each run: memory.TryUnmap(run), and reserved -= run.bytes; where it is refused, on with the next run.
//
// A request that fails leaves moved, frames, backs and the idle list as they then are. EndIteration adds 1 to ended; then, if
// ended >= 2 and 500 * moved > reserved / page, allowance rises by 1, unless it is 16 or more, or 40 or more where
// served is what it was when the last iteration ended; then moved and served are 0. In a shortage all of this is as
// outside of it.
//
// # Streams
//
// A request is served by the allocator of its stream. With growth pages the owner of several allocators also takes what others
// hold idle, so that all together map no more than their blocks have touched at a time, and a little slack. It keeps, for the
// allocators of a device: most, slack and moved, all 0 at first, in bytes. For a request that is about to map so many bytes (each
// memory.Grow, rounded up to pages, and each memory.Map, whether it is granted or not):
//
//	takeElsewhere(bytes):
//	    back = min(bytes, released)           # released: bytes that the allocator has unmapped or taken in this attempt, not yet mapped
//	    lack = bytes - back
//	    most = max(most, touched + lack)      # touched: bytes of pages that blocks of any allocator touch
//	    allowed = most + most / 400 * slack
//	    want = lack - min(lack, max(allowed - mapped - back, 0))      # mapped: of all allocators
//	    for each other allocator that gives and has pages that are mapped and not touched, the newest first, while want > 0:
//	        Movable(up(want, page) / page): the owner unmaps each of its ranges, as far as the device lets it
//	        want, but not below 0, falls by the bytes unmapped; released and moved rise by them
//
// Movable(pages) lists the pages that takeOldest would unmap for so many, without a keep, of those that are clear; a list of an
// age is cut into runs as unmapPages does it. With a stream captured nothing is taken. When an iteration ends: if moved >
// mapped / 500, slack = min(slack + 1, 16); then moved = 0. Allocators of pools and tags take, and do not give: what they have
// mapped counts as touched. Whether work is over is no decision of an allocator: a recording has it in its fence events.
//
// # Shortage
//
// Shortage() says that the device has no memory but what is mapped, now or from time to time. The
// shortage lasts as long as the allocator. Pages count then: a request takes no slack (see Alloc);
// with growth pages growAndSearch calls payAndGrow; and:
//
//	growAndSearch(rounded):                   # with any growth
//	    tail, credit = as above for growth needed
//	    least = none
//	    for chunk in the free chunks with size >= rounded in (size, address):
//	        for addr in chunk.addr, chunk.addr + chunk.size - rounded:
//	            pages = [down(addr, page), up(addr + rounded, page))
//	            if least is none, or has more unmapped bytes than pages: least = chunk, addr, pages
//	    behind the end = unmapped bytes of tail (0 if none) + up(rounded - credit, page)
//	    if least is not none, its pages have at most "behind the end" unmapped bytes, and
//	       mapFor(its chunk, its pages):
//	        hand out just [addr, addr + rounded); the rest of chunk on either side stays free
//	    else: go on as above for growth needed; with growth pages each growBy is payAndGrow
//
// So the search, which comes first, maps what the best fit lacks. Where that is refused a block goes into
// a chunk whose part is mapped, and else where the fewest pages are lacking. An owner that unmaps all
// free pages whenever a request fails, frees all slack at the first failure, and repeats the request as
// long as there was something to unmap, sees it fail in the end only if the pages that all blocks
// touch, with its own at the best place for it, are more than the memory has.
//
// Shrink(addr) frees the slack of the block that starts at addr, whether there is a shortage or not: the
// block then has rounded bytes, and keeps its number. The slack is joined with
// the free chunk behind it, the pages that only it touches are noted as used, as by a Free, and bytes in use
// fall by it. Without a block at addr, or without slack, it fails and changes nothing.
//
// # Garbage collection
//
// A region is idle if no chunk of it is in use. Collecting is worth it if the mapped bytes of idle
// regions are more than 0, and rounded <= room plus these bytes. It calls memory.Release for each
// idle region, also one without a mapped byte, addresses ascending; reserved falls by the mapped bytes. Next region stays. What
// is noted of pages goes with a region: a later grant of the same addresses has none. The owner, too, can collect
// garbage, at any time and whether that is worth it or not.
//
// # Unmap, Remap, Register and Restore by the owner
//
// Register(addr, bytes) says that others know the physical memory of a range: it must stay where it is until
// Deregister was called for the range as often. The calls change only the counts of pages that the range touches, of all
// regions, as far as there are such pages (see Pages). Where growth is not pages they do nothing: the memory refuses each
// TryUnmap of such pages, which it does with growth pages, too.
//
// Unmap(addr, bytes) says that the owner unmaps these pages. They have to be whole pages, at least
// one, all mapped and within one free chunk. Remap says that the owner has mapped pages again: whole
// pages, at least one, all unmapped, of no more bytes than room; they can lie in several regions that
// touch. Reserved falls and rises by their bytes, and peak reserved with it. Otherwise each fails and
// changes nothing. Neither calls the memory.
//
// Restore(addr, size, requested) makes a block at a place that no policy chose, to go back to a
// checkpoint: free all blocks, restore those of the checkpoint, and chunks are as they were, since
// free chunks are always joined. addr and size are multiples of 256, 1 <= requested <= size, and
// the range is mapped and within one free chunk. The rest of that chunk on either side stays free.
// The block gets the next number and counts in the statistics like one that was handed out.
//
// # Statistics
//
// They decide nothing, and are here since replays print them. All sizes are of chunks, not of requests:
//
//	allocs          blocks handed out or restored
//	bytes in use    bytes of all blocks; its peak is its maximum so far
//	largest alloc   bytes of the largest block so far, freed since or not
//	free            bytes of all free chunks, unmapped bytes too
//	largest free    bytes of the largest free chunk, unmapped bytes too
//	fragmentation   (free - largest free) / free, the difference and free as 64-bit floats; 0 if free is 0
//	bins            chunks, free and in use, by size: bin k has those of [256*2^k, 256*2^(k+1)) bytes,
//	                k = 0 to 20, the last without an upper end
//
// # Iterations
//
// Training repeats itself: what an iteration did not touch, the next one will not touch, as a rule. With trim
// iteration and with growth pages each Free notes the iteration under way with every page that the block touched and
// no block touches any more ("used" of Pages). Nothing is noted when a block is handed out or restored:
// only pages of free chunks are looked at, and each block that was there has been freed since.
//
//	Excess   with trim iteration: the whole pages of free chunks that are mapped, among the first 2^28 of their
//	         region, and have used <= ended - 1, so that the iteration that ended last has not touched
//	         them; none before an iteration has ended
//
// It is a list of maximal ranges, a range within one chunk, addresses ascending. The owner calls Trim after
// EndIteration, with trim iteration. The hook does the same beside the job: it unmaps the whole
// handles that lie in each range, from the end on, in slices of 16 MiB.
//
//	Trim:
//	    for range in Excess: if memory.TryUnmap(range): reserved -= range.bytes
//
// Nothing is mapped ahead: a request maps again what it needs.
//
//	iteration    0         1         2     3
//	page a       used      used      used  used    stays
//	page b       used      ·       ▲               unmapped at the end of 1
//	page c       ·       ▲           ▼ used  used  unmapped at the end of 0, mapped by a request in 2
//
// With trim idle the owner calls UnmapFree(bytes) when the job does nothing. It goes through the maximal
// ranges of whole, mapped pages of free chunks, a range
// within one chunk, addresses descending, until it has unmapped enough: memory.TryUnmap of the last
// up(bytes still wanted, page) bytes of each, or of all of it if it has fewer. A refusal goes on to
// the next range.
//
// # Which arena gets what
//
// A user chooses one Policy: a preset (classic or compact), a limit, a headroom, a handle and a trim. An arena is
// an allocator and its memory, for one device and one of each of these:
//
//	stream          the CUDA stream of the requests; the default stream is CUDA's stream 0
//	pool            a private pool of torch (of CUDA graphs, or a MemPool), or none
//	graph memory    a pool in which several CUDA graphs share physical pages
//	tag             what memprof.region() names to pause its memory as a whole, or none
//
// Policy.ForArena says what an arena gets of the policy. The first rows are parameters of the
// allocator, the last three of its memory. The rightmost column that fits holds; in graph memory tags
// are ignored:
//
//	                 default stream  other stream  pool       graph memory  tag
//	growth, classic  double          needed        needed     needed        needed
//	growth, compact  pages           pages         needed     needed        needed
//	headroom         chosen          0             0          0             0
//	limit            chosen (1)      none          none       none          none
//	split            (2)             (2)           (2)        always        (2)
//	trim             chosen          chosen        never      never         never
//	page             (3)             (3)           device's   device's      device's
//	handle           chosen (4)      chosen (4)    chosen (5) (6)           max(chosen, 256 MiB)
//	addresses        device's total  16 GiB (7)    16 GiB (7) (6)           16 GiB (7)
//
//	(1) none chosen: the device's memory
//	(2) classic with preset classic, always with compact
//	(3) the device's; with growth pages the greatest power of two that is not above the chosen handle, or 4 MiB
//	    where none is chosen, if that is more than the device's
//	(4) the page with growth pages; else if none is chosen: a page if the chosen trim is not never, else
//	    32 MiB; see (8)
//	(5) none chosen: 32 MiB; see (8)
//	(6) not used: pages and addresses are those of the graph memory
//	(7) or the device's memory, if that is less
//	(8) doubled while it is below 32 MiB and a map would have 4,096 handles or more; then halved while it is
//	    more than a page and more than a 2,048th of what can be mapped at that moment: the device's free memory,
//	    or what the limit of all arenas leaves, if that is less; then 16 MiB at least for a
//	    map of 1 GiB or more, but with growth pages
//
// The memory maps in CUDA handles (cuMemCreate) of at most "handle" bytes,
// rounded up to a page, or of a page each once any arena of the device is in a shortage, until UnmapFree leaves no
// more mapped than can be mapped, and refuses a
// memory.TryUnmap of less than whole handles. The handle is not
// the page (Memory.Granularity), but with growth pages. "Addresses" is the bytes of each address reservation, mapped or not:
// a grant that does not fit into the last one begins another, and a new region.
//
// # Example
//
// Pages are 2 MiB, the limit is 1 GiB, headroom 0, trim never, the memory coalesces, and its first
// grant is at 0. Columns: the call with the block, reserved after it, and the calls of the memory.
// Preset classic (growth double, split classic):
//
//	alloc a   3145728  [0, 4194304)             4194304  Grow(4194304) grants [0, 4194304)
//	alloc b   1572864  [4194304, 5767168)       8388608  Grow(4194304) grants [4194304, 8388608)
//	alloc c    700000  [5767168, 6467328)       8388608
//	free  a                                     8388608
//	alloc d   9437184  [6467328, 25165824)     25165824  Grow(16777216) grants [8388608, 25165824)
//	alloc e   2097152  [0, 2097152)            25165824
//
// Next region is doubled to 4 MiB for a, and to 8 MiB after b's growth. a gets all 4 MiB: 1 MiB
// left over is neither 128 MiB nor as much as a. b and c are cut out of larger chunks. For d next
// region becomes 16 MiB, the grant joins the free chunk behind c, and d gets all 17.8 MiB of it,
// which is less than twice d. e is half of the chunk that a had.
//
// Preset compact (growth pages, split always):
//
//	alloc a   3145728  [0, 3145728)             4194304  Grow(3145728) grants [0, 4194304)
//	alloc b   1572864  [3145728, 4718592)       6291456  Grow(524288) grants [4194304, 6291456)
//	alloc c    700000  [4718592, 5418752)       6291456
//	free  a                                     6291456
//	alloc d   9437184  [5418752, 14855936)     14680064  TryUnmap(0, 2097152), Grow(8564480) grants [6291456, 16777216)
//	alloc e   2097152  [0, 2097152)            16777216  Map(0, 2097152)
//
// b lacks 524288 bytes, since the tail has 1 MiB. For d the one whole page of the chunk that a had
// is unmapped before the growth. e is placed there all the same, so that it is mapped again.
//
// # Deviations from the reference
//
// The policy with growth double or whole and split classic is that of TensorFlow and XLA. Not
// reproduced are: requests near 2^64 that wrap to nothing; a limit that padded grants can exceed; a
// fragmentation of 0/0; a back-off that never ends. Requests have no alignment beyond the granule,
// and frees no timestamps. That double ignores a free tail, and that next region stays large after
// one huge failure, is as in the reference.
package bfc
