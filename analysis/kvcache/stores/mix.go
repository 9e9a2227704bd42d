package stores

// chain is a name of the name before and what follows; their order counts.
func chain(before, next uint64) uint64 { return mix(mix(before)*3 ^ next) }

// mix spreads a number over all 64 bits (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
