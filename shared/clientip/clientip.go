// Package clientip determines the client's address of a request: the peer, or, if the peer is a trusted proxy, the right-most address of
// X-Forwarded-For that is not a trusted proxy. A malformed header falls back to the peer, never to an address that the client chose.
package clientip

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"unsafe"
)

// Header is the name of the header that proxies append the address of their peer to.
const Header = "X-Forwarded-For"

// ipv6Host is the prefix length of an IPv6 address that counts as one client: a subscriber has at least a /64.
const ipv6Host = 64

// Proxies are the networks whose X-Forwarded-For is trusted. The zero value trusts no peer.
type Proxies []netip.Prefix

// ParseProxies reads a comma-separated list of CIDRs and single addresses, spaces allowed. The empty string trusts
// no peer. The error names the invalid entry.
func ParseProxies(s string) (Proxies, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	var proxies Proxies
	for entry := range strings.SplitSeq(s, ",") {
		prefix, err := parsePrefix(strings.TrimSpace(entry))
		if err != nil {
			return nil, fmt.Errorf("trusted proxy %q: %w", entry, err)
		}
		proxies = append(proxies, prefix)
	}
	return proxies, nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		addr, err := netip.ParseAddr(s)
		if err != nil {
			return netip.Prefix{}, err
		}
		addr = fold(addr)
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	if prefix.Addr().Is4In6() {
		// Addresses are folded before they are compared, so a mapped network would never contain one.
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	if !prefix.IsValid() {
		return netip.Prefix{}, fmt.Errorf("an IPv4-mapped network has at least 96 bits")
	}
	return prefix.Masked(), nil
}

// Client returns the address of the client, without zone and with IPv4-mapped IPv6 as IPv4. forwardedFor are the
// X-Forwarded-For lines in the order they came in; it is only read during the call. Client allocates nothing for
// well-formed lines.
func (p Proxies) Client(peer netip.Addr, forwardedFor [][]byte) netip.Addr {
	peer = fold(peer)
	if !p.contains(peer) {
		return peer
	}
	for i := len(forwardedFor) - 1; i >= 0; i-- {
		for rest, more := forwardedFor[i], true; more; {
			var entry []byte
			rest, entry, more = cutLast(rest)
			addr, ok := parse(entry)
			if !ok {
				return peer
			}
			if !p.contains(addr) {
				return addr
			}
		}
	}
	return peer
}

// Key returns the rate-limit key of a client: its IPv4 address in IPv4-mapped form, or the /64 of its IPv6 address.
func Key(addr netip.Addr) [16]byte {
	addr = fold(addr)
	key := addr.As16()
	if addr.Is6() {
		clear(key[ipv6Host/8:])
	}
	return key
}

// Network returns the /24 or /48 of an address for logs: it shows where a flood comes from and does not identify a person.
// It is empty for the zero address.
func Network(addr netip.Addr) string {
	addr = fold(addr)
	bits := 48
	if addr.Is4() {
		bits = 24
	}
	network, err := addr.Prefix(bits)
	if err != nil || !network.IsValid() {
		return ""
	}
	return network.String()
}

// Contains reports whether an address is that of a trusted proxy.
func (p Proxies) Contains(addr netip.Addr) bool { return p.contains(fold(addr)) }

func (p Proxies) contains(addr netip.Addr) bool {
	for _, prefix := range p {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// cutLast splits a line at its last comma; more says that there was one.
func cutLast(line []byte) (rest, entry []byte, more bool) {
	comma := bytes.LastIndexByte(line, ',')
	if comma < 0 {
		return nil, line, false
	}
	return line[:comma], line[comma+1:], true
}

// parse reads one entry: an address, or an address with a port as some proxies write it (1.2.3.4:80, [::1]:80).
func parse(entry []byte) (netip.Addr, bool) {
	entry = bytes.Trim(entry, " \t")
	if len(entry) == 0 {
		return netip.Addr{}, false
	}
	bracketed := entry[0] == '['
	if bracketed {
		host, port, found := bytes.Cut(entry[1:], []byte("]"))
		if !found || len(port) > 0 && (port[0] != ':' || !isPort(port[1:])) {
			return netip.Addr{}, false
		}
		entry = host
	} else if host, port, found := bytes.Cut(entry, []byte(":")); found && bytes.IndexByte(port, ':') < 0 {
		if !isPort(port) {
			return netip.Addr{}, false
		}
		entry = host
	}
	// The zone is cut off here, because netip never frees a zone that it has parsed.
	entry, zone, zoned := bytes.Cut(entry, []byte("%"))
	if len(entry) == 0 || zoned && len(zone) == 0 {
		return netip.Addr{}, false
	}
	// ParseAddr keeps its argument only in the error and in a zone, neither of which outlives this call.
	addr, err := netip.ParseAddr(unsafe.String(&entry[0], len(entry)))
	if err != nil || addr.Is4() && (bracketed || zoned) {
		return netip.Addr{}, false
	}
	return fold(addr), true
}

func isPort(b []byte) bool {
	if len(b) == 0 || len(b) > len("65535") {
		return false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// fold returns the canonical form of an address.
func fold(addr netip.Addr) netip.Addr {
	return addr.Unmap().WithZone("")
}
