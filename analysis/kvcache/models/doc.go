// Package models describes language models by the shapes that the bytes of their weights and of their KV
// caches follow from. It knows nothing of servers or of how caches are allocated.
//
// # Sizes
//
// A layer stores one key and one value for each token that it keeps. Each of both takes KVHeads·HeadSize
// elements of KVBytes (DtypeBytes if that is 0); keys and values of one layer are two tensors. With tensor
// parallelism over n GPUs each GPU stores KVHeads/n heads, at least one, and 1/n of the weights, rounded up.
// Latent attention (MLA) stores one latent vector for each token, which is divided over the two tensors.
//
// # Layers
//
// Layers of one model may keep different parts of a sequence of t tokens. LayerKind.Kept says which:
//
//	full      all t tokens
//	sliding   the last Window tokens
//	chunked   the tokens from the last multiple of Window below t on
//	cross     the Window tokens of an encoder, whatever t is
//	state     one state of Bytes bytes, whatever t is
//
// # Pages
//
// Layout is how vLLM divides a cache into pages of one size, which layers of all kinds share.
//
// # Configurations
//
// Open reads a model from its config.json: the type of the cache's elements, heads (GQA), latents (MLA), windows, layers
// that share the cache of others, and states of Mamba 1 and 2, gated delta nets, Kimi's delta attention and short
// convolutions. A convolution keeps its last inputs but one kernel's first, in the type of the model. Where GPUs divide
// the heads they divide states too, but for the B and C of Mamba 2 if there is one group of them.
//
// # Cards
//
// Card divides the memory of one GPU: weights, KV cache and the rest, which sum to its total.
package models
