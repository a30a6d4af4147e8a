package origin

import "testing"

// BenchmarkLink looks codes up, one after the other. What counts is what it allocates: unknown codes by the thousand make an edge collect
// garbage, for which clicks wait.
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
