//go:build !amd64 && !arm64

// Package prefetch does nothing on this processor.
package prefetch

// Line does nothing.
func Line(uintptr) {}
