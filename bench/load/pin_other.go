//go:build !linux

package load

import "errors"

// Pin is available on Linux only.
func Pin(string) error { return errors.New("pinning to cores works on Linux only") }
