// Package release holds the version of a program.
package release

import "runtime/debug"

// version is set by the linker: -ldflags='-X deeplink/shared/release.version=1.2.3' (deploy/Dockerfile).
var version string

// MaxLength bounds the result of Version. It is the bound of edges.release.
const MaxLength = 100

// Version returns the version that the linker set, otherwise the version that go build recorded, otherwise "".
func Version() string {
	name := version
	if info, ok := debug.ReadBuildInfo(); ok && name == "" && info.Main.Version != "(devel)" {
		name = info.Main.Version
	}
	return name[:min(len(name), MaxLength)]
}
