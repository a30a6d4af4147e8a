package replica

import (
	"net"
	"os"
	"strings"
	"testing"
)

func TestAddressWithoutHostGetsLocalAddressOfDatabaseConnection(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 54321} }
	for _, test := range []struct {
		address  string
		local    net.Addr
		expected string // empty: none
	}{
		{"", tcp("10.0.0.1"), ""},
		{"edge-1.internal:8080", tcp("10.0.0.1"), "edge-1.internal:8080"},
		{"[fd00::2]:8080", tcp("10.0.0.1"), "[fd00::2]:8080"},
		{":8080", tcp("10.0.0.1"), "10.0.0.1:8080"},
		{":8080", tcp("fd00::1"), "[fd00::1]:8080"},
		{":8080", tcp("::ffff:10.0.0.1"), "10.0.0.1:8080"},
		{":8080", &net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 54321, Zone: "eth0"}, host + ":8080"},
		{":8080", &net.UnixAddr{Name: "", Net: "unix"}, host + ":8080"},
		{":8080", &net.UnixAddr{Name: "@", Net: "unix"}, host + ":8080"},
	} {
		got, err := advertisedAddress(test.address, test.local)
		if err != nil || (got == nil) != (test.expected == "") || got != nil && *got != test.expected {
			t.Errorf("%q from %v: %v, %v; expected %q", test.address, test.local, got, err, test.expected)
		}
	}
	for _, bad := range []string{":0", ":http", "8080", "edge:80/x", "user@edge:80", "[fe80::1%eth0]:80"} {
		if got, err := advertisedAddress(bad, tcp("10.0.0.1")); err == nil {
			t.Errorf("%q: %v, expected an error", bad, got)
		}
	}
}

// A poll with an address that the table rejects would cost the edge its lease.
func TestTableAcceptsEveryValidAddress(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	long := strings.Repeat("a", 253)
	for _, address := range []string{
		"10.0.0.1:8080", "edge-1.internal:1", "edge_1:65535", "edge_1:65536", "[fd00::1]:8080", "[::ffff:10.0.0.1]:80", long + ":65535", long + "a:65535",
		"", ":8080", "edge", "edge:", "edge:0", "edge:080", "edge:http", "fd00::1:80", "[fe80::1%eth0]:80", "[]:80", "[edge]:80", "user@edge:80", "edge:80/x",
		"edge/x:80", "http://edge:80", "edge?:80", "edge :80", "edge:80\n", "\nedge:80", "edge\x00:80", "édge:80", "10.0.0.1:80,10.0.0.2:80",
	} {
		if !ValidAddress(address) {
			continue
		}
		f.exec(t, `insert into edges (slot, incarnation, lease_ms, hold_ms, address) values (gen_random_uuid(), gen_random_uuid(), 1, 1, $1)`, address)
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" || strings.ContainsAny(address, "/@%? \n\x00") {
			t.Errorf("%q is accepted as an address", address)
		}
	}
	for _, address := range []string{"10.0.0.1:8080", "edge-1.internal:1", "edge_1:65535", "[fd00::1]:8080", long + ":65535"} {
		if !ValidAddress(address) {
			t.Errorf("%q is rejected", address)
		}
	}
}

func TestRowHoldsAddressOfEdge(t *testing.T) {
	t.Parallel()
	for address, expected := range map[string]string{"": "", "edge-1.internal:8080": "edge-1.internal:8080", ":8080": "127.0.0.1:8080", ":0": ""} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, func(o *Options) { o.Address = address })
			f.untilReady(t) // also if the address is unusable
			f.exec(t, `update edges set address = 'elsewhere:1'`)
			f.nextLease(t)
			f.nextLease(t) // the first row may be from a poll that wrote earlier
			var got string
			if err := f.owner.QueryRow(t.Context(), `select coalesce(address, '') from edges`).Scan(&got); err != nil || got != expected {
				t.Errorf("the row says %q, %v; expected %q", got, err, expected)
			}
		})
	}
}
