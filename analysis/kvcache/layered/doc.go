// Package layered is the memory of the policies hybrid and uniform: of models whose layers do not all keep the same
// of a sequence (package models has the kinds).
//
// # Hybrid
//
// Layers form groups of equally many layers of one kind (layout.go). Each group of a sequence has a block table of
// its own, and all blocks are pages of one size. So a sliding layer gives back the pages that its window has left. A
// group that has fewer layers leaves a part of each page empty; so do kinds whose tokens do not divide a page.
//
// # Uniform
//
// One block table is of all layers, and every layer that keeps tokens keeps all of them: caches before vLLM had
// pages for layers of several kinds.
package layered
