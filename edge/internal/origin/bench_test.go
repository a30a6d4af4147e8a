package origin

import "testing"

// BenchmarkLink looks up codes, one after the other. Its allocations matter: thousands of unknown codes cause garbage collections, which
// delay clicks.
func BenchmarkLink(b *testing.B) {
	o := newTestEnv(b).origin(connectionsPerSender)
	for _, code := range []string{"code0", "unknown"} {
		b.Run(code, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := o.Link(b.Context(), "abcd", code); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
