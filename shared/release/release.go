// Package release says which release of Deeplink a program is.
package release

import "runtime/debug"

// version is set by the linker: -ldflags='-X deeplink/shared/release.version=1.2.3' (deploy/Dockerfile).
var version string

// MaxLength bounds what Version returns, as the table edges does.
const MaxLength = 100

// Version names the release: what the linker was told, or the commit that go build found, or "" when nobody knows.
func Version() string {
	name := version
	if info, ok := debug.ReadBuildInfo(); ok && name == "" && info.Main.Version != "(devel)" {
		name = info.Main.Version
	}
	return name[:min(len(name), MaxLength)]
}
