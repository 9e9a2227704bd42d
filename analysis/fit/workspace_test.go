package fit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// network is the requests of convolutions, as recordings at several sizes have them.
type network struct {
	sizes    []float64
	requests []request
}

// add is a request of so many bytes at each size.
func (n *network) add(workspace bool, bytes ...int64) *network {
	r := request{workspace: workspace}
	for i, b := range bytes {
		r.found = append(r.found, point{size: n.sizes[i], bytes: b})
	}
	n.requests = append(n.requests, r)
	return n
}

// tensor is a request that grows in proportion, of so many KiB by unit of the size; weights is one that does not grow.
func (n *network) tensor(perUnit int64) *network {
	var bytes []int64
	for _, size := range n.sizes {
		bytes = append(bytes, perUnit<<10*int64(size))
	}
	return n.add(false, bytes...)
}

func (n *network) weights(kib int64) *network {
	var bytes []int64
	for range n.sizes {
		bytes = append(bytes, kib<<10)
	}
	return n.add(false, bytes...)
}

// TestWorkspacesOfTensors has sizes of workspaces that cuDNN took on an H200 for convolutions of 512 channels (1,568 KiB for an image of
// 28 x 28, 392 for one of 14 x 14, weights of 9 MiB) and of 256.
func TestWorkspacesOfTensors(t *testing.T) {
	at := func(sizes ...float64) *network { return &network{sizes: sizes} }
	large := func(n *network) *network { return n.weights(9216).tensor(1568).tensor(1568) }
	small := func(n *network) *network {
		return n.weights(9216).tensor(392).tensor(392).add(true, 35127312, 77595055)
	}
	tests := []struct {
		name string
		net  *network
		size float64
		want int64
	}{
		{"copies and weights, at the larger size", large(at(16, 32)).add(true, 77595055, 112197779), 64, 98<<20 + 98<<20 + 9<<20 + 147},
		{"between", large(at(16, 64)).add(true, 77595055, 214958227), 32, 112197779},
		{"three recordings", large(at(16, 32, 64)).add(true, 77595055, 112197779, 214958227), 48, 147<<20 + 9<<20 + 147},
		{"two tensors of different sizes, other tensors between", at(16, 64).weights(4608).tensor(784).tensor(8).tensor(1568).add(true, 43253776, 158859411), 32, 78<<20 + 147},
		{"equal rests without a tensor of their size", large(at(16, 32)).add(true, 69468911, 120849135), 64, 223609583},
		{"rests that differ, and no tensor has: those that differ least", at(16, 32).weights(9216).tensor(6272).add(true, 208208147, 415826291), 64, 784<<20 + 415826291 - 392<<20},
		{"one kernel, whose tensors are elsewhere", at(32, 64).weights(9216).tensor(1).add(true, 431908831, 862218207), 16, 216754143},
		{"a workspace of the same shape elsewhere", small(at(32, 64)).tensor(1568).tensor(1568).add(true, 112197779, 214958227), 16, 77595055},
		{"two of the same shape that differ", small(at(32, 64)).tensor(392).tensor(392).add(true, 35127312, 85983663).tensor(1568).tensor(1568).add(true, 112197779, 214958227), 16, 58<<20 + 147},
		{"in proportion", at(16, 64).weights(512).tensor(192).add(true, 7<<19, 14<<20), 32, 0},
		{"a recorded size", large(at(16, 32)).add(true, 77595055, 112197779), 32, 0},
		{"no tensor around", at(16, 32).weights(9216).add(true, 77595055, 112197779), 64, 0},
		{"smaller than any tensor", at(16, 32).tensor(99999).add(true, 77595055, 112197779), 64, 0},
		{"of one recording", large(at(16)).add(true, 77595055), 64, 0},
		{"too small to matter", large(at(16, 32)).add(true, 400, 512), 64, 0},
		{"no workspace", large(at(16, 32)).add(false, 77595055, 112197779), 64, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			asked := len(test.net.requests) - 1
			got, _ := newWorkspaces(test.net.tensor(1).requests, test.size).bytes(asked)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("bytes at %v (-want +got):\n%s", test.size, diff)
			}
		})
	}
}
