package snapshot

// The keys of entries and frames are the first texts of each decoder, so that they are compared
// as numbers. A dictionary with the first of them is an entry to the decoder.
const (
	keyAction = iota
	keyAddr
	keyDeviceFree
	keySize
	keyStream
	keyTime
	keyFrames
	keyMetadata
	keyPool
	keySegmentPool
	keyBlock
	keyName
	keyFile
	keyLine
	firstAction // the actions follow
)

// action is what an entry of a trace says.
type action uint8

const (
	actionAlloc action = iota
	actionFreeRequested
	actionFreeCompleted
	actionFree
	actionSegmentAlloc
	actionSegmentFree
	actionSegmentMap
	actionSegmentUnmap
	actionOOM
	actionUserDefined // a mark of the job, as torch 2.4 writes it
	actionOther       // no memory changes: snapshot, workspace_snapshot, annotate
)

var wellKnown = [...]string{
	"action", "addr", "device_free", "size", "stream", "time_us", "frames", "user_metadata", "pool_id",
	"segment_pool_id", "block_size", "name", "filename", "line",
	"alloc", "free_requested", "free_completed", "free", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom",
	"user_defined",
}

// actionOf is the action of a text's number.
func actionOf(text uint64) action {
	if text < firstAction || text >= firstAction+uint64(actionOther) {
		return actionOther
	}
	return action(text - firstAction)
}
