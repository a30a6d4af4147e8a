package main

import (
	"sync"
	"sync/atomic"
)

// maxErrorPageDomains bounds the domains in errorPages. Each takes about 100 bytes, in addition to EDGE_CACHE_BYTES.
const maxErrorPageDomains = 1 << 16

// errorPages remembers which domains belong to organizations that want HTML error pages (app config htmlErrorPages), as the latest load
// of a key of the domain found it. It is not part of the replica, because the edge also refuses clicks without a lookup: over the rate
// limit, or while Postgres cannot be reached. The zero value is ready to use. It is safe for concurrent use.
type errorPages struct {
	loads   atomic.Uint64
	mu      sync.RWMutex
	domains map[string]errorPageSetting
}

// errorPageSetting is what a load found, and the number of that load.
type errorPageSetting struct {
	load   uint64
	wanted bool
}

// startLoad returns the number of a load. It must be called before the load queries Postgres.
func (e *errorPages) startLoad() uint64 { return e.loads.Add(1) }

// record stores what a load found. If two loads overlap, the one that started later wins, because it may have read a later app config.
// A domain that does not exist is not added, so that made-up hosts take no memory.
func (e *errorPages) record(domain string, load uint64, exists, wanted bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known, found := e.domains[domain]
	switch {
	case found && load < known.load, !found && !exists:
		return
	case e.domains == nil:
		e.domains = make(map[string]errorPageSetting)
	case !found && len(e.domains) >= maxErrorPageDomains:
		for other := range e.domains {
			delete(e.domains, other) // any: its next load adds it again
			break
		}
	}
	e.domains[domain] = errorPageSetting{load, wanted}
}

// wanted reports whether the domain's organization wants HTML error pages.
func (e *errorPages) wanted(domain []byte) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.domains[string(domain)].wanted
}
