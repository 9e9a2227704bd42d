// Package mapped is the memory of the policies vmm, vattention and elastic, which map pages of physical memory as
// the tokens of sequences come.
//
// # Rows
//
// Keys and values of each layer are a tensor of their own, and a page belongs to one tensor. So all tensors map a
// page at the same time: a row is one page in every tensor. With g bytes a page and τ bytes a token in one tensor a
// row has g/τ slots, perhaps a fraction of one.
//
// # Who holds a row
//
//	vmm         a sequence, at contiguous addresses; its rows are unmapped when it ends
//	vattention  a sequence; the rows stay mapped for the next one until another sequence needs them
//	elastic     blocks of several sequences; a row is unmapped when its last block is free, but for two
//
// Several engines under elastic map from the same [Memory]. Memory that is mapped and that no sequence uses is idle.
package mapped
