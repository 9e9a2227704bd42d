// Package repeat is what `memprof rerun` does. A memprof that was built without cgo cannot do it, and says so.
package repeat

// Options are those of rerun.
type Options struct {
	Iterations int64  // to make; 0 is all
	Log        string // file that takes a line for each allocation; "" for none
	JSON       bool   // print JSON
}

// Result is what --json prints.
type Result struct {
	Through    string `json:"through"`
	Allocs     int64  `json:"allocs"`
	Frees      int64  `json:"frees"`
	Refused    int64  `json:"refused"`
	Iterations int64  `json:"iterations"`
	Labels     int64  `json:"labels"`
	Others     int64  `json:"other_libraries"` // allocations of other libraries
	Failed     int64  `json:"failed"`          // calls other than requests
}
