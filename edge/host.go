package main

import (
	"bytes"
	"net/netip"

	"deeplink/shared/catalog"
	"deeplink/shared/settings"
)

// place says what a Host header names.
type place uint8

const (
	nowhere      place = iota // nothing that a link can live on
	sharedHost                // the shared host, by one of its names
	customDomain              // what may be a custom domain; only the catalog knows
)

// hosts are the names of the shared host. It is not changed once made.
type hosts struct {
	authority string // as most requests have it: the host of LINK_BASE_URL with its port
	names     []string
}

func newHosts(base settings.LinkBase, extra []hostName) hosts {
	h := hosts{authority: base.Authority(), names: []string{"localhost"}}
	if name, ok := bare([]byte(h.authority)); ok {
		h.names = append(h.names, string(name))
	}
	for _, name := range extra {
		h.names = append(h.names, string(name))
	}
	return h
}

// find tells what a Host header names and, when that is a custom domain, appends its name to dst in the catalog's form: lower
// case, no port, no trailing dot. It allocates nothing unless the host is an address.
func (h *hosts) find(dst, header []byte) ([]byte, place) {
	if string(header) == h.authority {
		return dst, sharedHost
	}
	host, ok := bare(header)
	if !ok || len(host) > catalog.MaxHost {
		return dst, nowhere
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
	return dst, nowhere
}

// bare returns the host of a Host header without port, brackets and trailing dot. ok is false when it is none.
func bare(header []byte) (host []byte, ok bool) {
	if inner, bracketed := bytes.CutPrefix(header, []byte("[")); bracketed {
		host, port, closed := bytes.Cut(inner, []byte("]"))
		return host, closed && bytes.IndexByte(host, ':') >= 0 && (len(port) == 0 || port[0] == ':' && isNumber(port[1:]))
	}
	host, port := cut(header, ':')
	host = bytes.TrimSuffix(host, []byte("."))
	return host, len(host) > 0 && isNumber(port)
}

// isNumber reports whether b has digits only. An empty port is none (RFC 3986, 3.2.3).
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

// isDomain reports whether a name in lower case can be that of a custom domain. It lets pass whatever catalog.CheckHost does.
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
