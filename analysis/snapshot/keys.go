package snapshot

// The keys of entries and frames are the first texts of each decoder, so that they are compared
// as numbers.
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
	keyName
	keyFile
	keyLine
	keyCount
)

var wellKnown = [keyCount]string{
	"action", "addr", "device_free", "size", "stream", "time_us", "frames", "user_metadata", "pool_id",
	"segment_pool_id", "name", "filename", "line",
}
