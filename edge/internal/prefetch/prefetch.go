//go:build amd64 || arm64

// Package prefetch asks the processor to read memory ahead of its use, so that several cache misses overlap. It changes no result: an
// address may be any number.
package prefetch

// Line starts to read the cache line at an address.
//
//go:noescape
func Line(address uintptr)
