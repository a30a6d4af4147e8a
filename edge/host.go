package main

import (
	"bytes"
	"net/netip"

	"deeplink/shared/catalog"
	"deeplink/shared/settings"
)

// hostKind is what a Host header names.
type hostKind uint8

const (
	unknownHost  hostKind = iota // no host of links
	sharedHost                   // the shared host, by one of its names
	customDomain                 // possibly a custom domain: only the catalog knows
)

// hosts are the names of the shared host. It is immutable.
type hosts struct {
	authority string // the host of LINK_BASE_URL with its port, which most requests have
	names     []string
}

func newHosts(base settings.LinkBase, extra []settings.HostName) hosts {
	h := hosts{authority: base.Authority(), names: []string{"localhost"}}
	if name, ok := bare([]byte(h.authority)); ok {
		h.names = append(h.names, string(name))
	}
	for _, name := range extra {
		h.names = append(h.names, string(name))
	}
	return h
}

// find returns what a Host header names. If that may be a custom domain, find appends its name to dst in the catalog's form: lower case,
// no port, no trailing dot. find allocates only if the host is an IP address.
func (h *hosts) find(dst, header []byte) ([]byte, hostKind) {
	if string(header) == h.authority {
		return dst, sharedHost
	}
	host, ok := bare(header)
	if !ok || len(host) > catalog.MaxHost {
		return dst, unknownHost
	}
	name := appendLower(dst, host)
	lower := name[len(dst):]
	for _, shared := range h.names {
		if string(lower) == shared {
			return dst, sharedHost
		}
	}
	switch {
	case isDomain(lower):
		return name, customDomain
	case isAddress(lower):
		return dst, sharedHost
	}
	return dst, unknownHost
}

// bare returns the host of a Host header without port, brackets and trailing dot. ok is false if the header is malformed.
func bare(header []byte) (host []byte, ok bool) {
	if inner, bracketed := bytes.CutPrefix(header, []byte("[")); bracketed {
		host, port, closed := bytes.Cut(inner, []byte("]"))
		return host, closed && bytes.IndexByte(host, ':') >= 0 && (len(port) == 0 || port[0] == ':' && isNumber(port[1:]))
	}
	host, port, _ := bytes.Cut(header, []byte(":"))
	host = bytes.TrimSuffix(host, []byte("."))
	return host, len(host) > 0 && isNumber(port)
}

// isNumber reports whether b consists of digits. b may be empty: a port may be (RFC 3986, section 3.2.3).
func isNumber(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

func appendLower(dst, s []byte) []byte {
	for _, c := range s {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		dst = append(dst, c)
	}
	return dst
}

// isDomain reports whether a lower-case name can be a custom domain. It accepts every host that catalog.CheckHost accepts.
func isDomain(name []byte) bool {
	labels, start, numeric := 0, 0, true
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '.' {
			c := name[i]
			digit := '0' <= c && c <= '9'
			if !digit && c != '-' && (c < 'a' || c > 'z') {
				return false
			}
			numeric = numeric && digit
			continue
		}
		label := name[start:i]
		if len(label) == 0 || len(label) > catalog.MaxHostLabel || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		labels++
		if i < len(name) {
			start, numeric = i+1, true
		}
	}
	return labels >= 2 && !numeric
}

func isAddress(host []byte) bool {
	address, err := netip.ParseAddr(string(host))
	return err == nil && address.Zone() == ""
}
