package fill

import "testing"

func TestFallbackURLsHaveTypicalLengths(t *testing.T) {
	t.Parallel()
	for n := range 5_000 {
		if url := fillFallback(n); len(url) < minFallback || len(url) > maxFallback {
			t.Fatalf("%s has %d bytes", url, len(url))
		}
	}
}

func TestZipfSizes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ n, m, first, last int }{{1, 1, 1, 1}, {5, 5, 1, 1}, {100, 3, 55, 18}, {10_000_000, 12_000, 1_002_000, 84}} {
		sizes := zipfSizes(c.n, c.m)
		sum := 0
		for _, size := range sizes {
			sum += size
		}
		if first := sizes[0]; sum != c.n || len(sizes) != c.m || first < c.first*98/100 || first > c.first*102/100 || sizes[c.m-1] != c.last {
			t.Errorf("%d in %d parts: %d parts, sum %d, the first %d, the last %d", c.n, c.m, len(sizes), sum, first, sizes[c.m-1])
		}
	}
}
