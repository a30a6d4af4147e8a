package clientip_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"deeplink/shared/clientip"
)

func proxies(t testing.TB, s string) clientip.Proxies {
	t.Helper()
	p, err := clientip.ParseProxies(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func lines(header []string) [][]byte {
	var all [][]byte
	for _, line := range header {
		all = append(all, []byte(line))
	}
	return all
}

func TestClient(t *testing.T) {
	t.Parallel()
	const trusted = "10.0.0.0/8, 192.0.2.7 ,2001:db8::/32,::ffff:172.16.0.0/108"
	for name, test := range map[string]struct {
		peer     string
		header   []string
		expected string
	}{
		"no header":                          {"10.0.0.1", nil, "10.0.0.1"},
		"untrusted peer's header is ignored": {"198.51.100.1", []string{"1.2.3.4"}, "198.51.100.1"},
		"one hop":                            {"10.0.0.1", []string{"1.2.3.4"}, "1.2.3.4"},
		"single trusted address":             {"192.0.2.7", []string{"1.2.3.4"}, "1.2.3.4"},
		"its neighbour is not":               {"192.0.2.8", []string{"1.2.3.4"}, "192.0.2.8"},
		"right-most that is not trusted":     {"10.0.0.1", []string{"6.6.6.6, 1.2.3.4, 10.9.9.9"}, "1.2.3.4"},
		"what the client claims is ignored":  {"10.0.0.1", []string{"6.6.6.6,1.2.3.4"}, "1.2.3.4"},
		"lines are one list":                 {"10.0.0.1", []string{"6.6.6.6", "1.2.3.4", "10.0.0.3, 10.0.0.2"}, "1.2.3.4"},
		"all trusted":                        {"10.0.0.1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.1"},
		"garbage":                            {"10.0.0.1", []string{"1.2.3.4, unknown"}, "10.0.0.1"},
		"garbage behind a trusted one":       {"10.0.0.1", []string{"1.2.3.4, _hidden, 10.0.0.2"}, "10.0.0.1"},
		"garbage left of the client":         {"10.0.0.1", []string{"<script>, 1.2.3.4"}, "1.2.3.4"},
		"empty line":                         {"10.0.0.1", []string{"1.2.3.4", ""}, "10.0.0.1"},
		"empty entry":                        {"10.0.0.1", []string{"1.2.3.4,"}, "10.0.0.1"},
		"tabs and spaces":                    {"10.0.0.1", []string{"\t 1.2.3.4 \t"}, "1.2.3.4"},
		"port":                               {"10.0.0.1", []string{"1.2.3.4:80"}, "1.2.3.4"},
		"no port after the colon":            {"10.0.0.1", []string{"1.2.3.4:"}, "10.0.0.1"},
		"port of letters":                    {"10.0.0.1", []string{"1.2.3.4:http"}, "10.0.0.1"},
		"IPv6":                               {"2001:db8::1", []string{"2a00::1"}, "2a00::1"},
		"brackets":                           {"10.0.0.1", []string{"[2a00::1]"}, "2a00::1"},
		"brackets and port":                  {"10.0.0.1", []string{"[2a00::1]:443"}, "2a00::1"},
		"brackets and more":                  {"10.0.0.1", []string{"[2a00::1]443"}, "10.0.0.1"},
		"open bracket":                       {"10.0.0.1", []string{"[2a00::1"}, "10.0.0.1"},
		"IPv4 in brackets":                   {"10.0.0.1", []string{"[1.2.3.4]"}, "10.0.0.1"},
		"zone":                               {"10.0.0.1", []string{"fe80::1%eth0"}, "fe80::1"},
		"empty zone":                         {"10.0.0.1", []string{"fe80::1%"}, "10.0.0.1"},
		"zone of IPv4":                       {"10.0.0.1", []string{"1.2.3.4%eth0"}, "10.0.0.1"},
		"mapped client":                      {"10.0.0.1", []string{"::ffff:1.2.3.4"}, "1.2.3.4"},
		"mapped peer":                        {"::ffff:10.0.0.1", []string{"1.2.3.4"}, "1.2.3.4"},
		"mapped trusted network":             {"172.20.0.1", []string{"1.2.3.4"}, "1.2.3.4"},
		"mapped hop":                         {"10.0.0.1", []string{"1.2.3.4, ::ffff:10.0.0.2"}, "1.2.3.4"},
		"leading zeros":                      {"10.0.0.1", []string{"01.2.3.4"}, "10.0.0.1"},
		"host name":                          {"10.0.0.1", []string{"localhost"}, "10.0.0.1"},
		"zone of the peer":                   {"fe80::1%eth0", nil, "fe80::1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := proxies(t, trusted).Client(netip.MustParseAddr(test.peer), lines(test.header))
			if got != netip.MustParseAddr(test.expected) {
				t.Errorf("peer %s, header %q: got %s, expected %s", test.peer, test.header, got, test.expected)
			}
		})
	}
}

func TestZeroProxiesTrustNoPeer(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "  "} {
		got := proxies(t, s).Client(netip.MustParseAddr("127.0.0.1"), lines([]string{"1.2.3.4"}))
		if got.String() != "127.0.0.1" {
			t.Errorf("proxies %q: got %s, expected the peer", s, got)
		}
	}
}

func TestParseProxiesNamesTheInvalidEntry(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{"10.0.0.0/33", "proxy.example", "10.0.0", "::ffff:10.0.0.0/90", "fe80::1%eth0/64"} {
		_, err := clientip.ParseProxies("127.0.0.1," + wrong)
		if err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%q: got error %v, expected one that names it", wrong, err)
		}
	}
	if _, err := clientip.ParseProxies("127.0.0.1,,10.0.0.1"); err == nil {
		t.Error("an empty entry is accepted")
	}
}

func TestParseProxiesMasksNetworks(t *testing.T) {
	t.Parallel()
	got := proxies(t, "10.1.2.3/8,::ffff:127.0.0.1,fe80::1%eth0")
	expected := []string{"10.0.0.0/8", "127.0.0.1/32", "fe80::1/128"}
	var texts []string
	for _, prefix := range got {
		texts = append(texts, prefix.String())
	}
	if !slices.Equal(texts, expected) {
		t.Errorf("got %q, expected %q", texts, expected)
	}
}

func TestKeyIsEqualForTheAddressesOfOneClient(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		one, other string
		same       bool
	}{
		{"1.2.3.4", "::ffff:1.2.3.4", true},
		{"1.2.3.4", "1.2.3.5", false},
		{"2a00:1:2:3::1", "2a00:1:2:3:ffff:ffff:ffff:ffff", true},
		{"2a00:1:2:3::1", "2a00:1:2:4::1", false},
		{"fe80::1%eth0", "fe80::2", true},
		{"0.0.0.0", "::1", false},
	} {
		one, other := clientip.Key(netip.MustParseAddr(test.one)), clientip.Key(netip.MustParseAddr(test.other))
		if (one == other) != test.same {
			t.Errorf("%s and %s: keys %x and %x, expected the same: %v", test.one, test.other, one, other, test.same)
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	p := proxies(t, "10.0.0.0/8,2001:db8::/32")
	peer := netip.MustParseAddr("10.0.0.1")
	header := lines([]string{"6.6.6.6, [2a00:1234:5678:9abc:def0:1234:5678:9abc]:443, 2001:db8::1%eth0", "10.1.1.1:8080,10.2.2.2"})
	if got := p.Client(peer, header); got.String() != "2a00:1234:5678:9abc:def0:1234:5678:9abc" {
		t.Fatalf("got %s", got)
	}
	if n := testing.AllocsPerRun(100, func() { clientip.Key(p.Client(peer, header)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzClient(f *testing.F) {
	for _, seed := range []string{"1.2.3.4", "6.6.6.6, 10.0.0.2", "[::1]:80", "fe80::1%eth0", "::ffff:10.0.0.1", ",", "1.2.3.4:", "%", "[", "[]", "[]:"} {
		f.Add(seed, seed)
	}
	p, peer := proxies(f, "10.0.0.0/8"), netip.MustParseAddr("10.0.0.1")
	f.Fuzz(func(t *testing.T, first, second string) {
		header := lines([]string{first, second})
		got := p.Client(peer, header)
		if got.Zone() != "" || got.Is4In6() || !got.IsValid() {
			t.Fatalf("%q: got %s", header, got)
		}
		if string(header[0]) != first || string(header[1]) != second {
			t.Fatalf("%q, %q was changed to %q", first, second, header)
		}
		if got == peer {
			return
		}
		if p[0].Contains(got) {
			t.Fatalf("%q: got the trusted %s", header, got)
		}
		if split := p.Client(peer, lines([]string{first + "," + second})); split != got {
			t.Fatalf("%q: got %s, but %s when it is one line", header, got, split)
		}
	})
}

func BenchmarkClient(b *testing.B) {
	p := proxies(b, "10.0.0.0/8,2001:db8::/32")
	peer, header := netip.MustParseAddr("10.0.0.1"), lines([]string{"6.6.6.6, 1.2.3.4, 10.2.2.2"})
	b.ReportAllocs()
	for b.Loop() {
		p.Client(peer, header)
	}
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	for address, expected := range map[string]string{
		"198.51.100.77": "198.51.100.0/24", "::ffff:198.51.100.77": "198.51.100.0/24", "2001:db8:1:2:3::4": "2001:db8:1::/48", "fe80::1%eth0": "fe80::/48",
	} {
		if got := clientip.Network(netip.MustParseAddr(address)); got != expected {
			t.Errorf("%s: %s, expected %s", address, got, expected)
		}
	}
	if got := clientip.Network(netip.Addr{}); got != "" {
		t.Errorf("no address: %s", got)
	}
}
