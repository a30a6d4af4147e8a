package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// lookupTimeout bounds one look at DNS. It leaves a request time for what comes after.
	lookupTimeout = 5 * time.Second
	// maxLookups is how many are under way at once, one for an organization: the servers of a domain may be as slow as their owner
	// likes.
	maxLookups = 32
)

// prover looks for the records that prove domains. It asks a DNS server and nobody else: no host that a customer names is ever
// connected to.
type prover struct {
	records interface {
		LookupTXT(ctx context.Context, name string) ([]string, error)
	}
	places  chan struct{}
	looking sync.Map // id of an organization → nothing
}

// newProver returns a prover that asks the DNS server at address, or the system's when it is empty.
func newProver(address string) *prover {
	// Go's own resolver takes answers of 64 KiB at most, does not look at the machine's files of hosts, and ends with its context.
	resolver := &net.Resolver{PreferGo: true}
	if address != "" {
		resolver.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	}
	return &prover{records: resolver, places: make(chan struct{}, maxLookups)}
}

// missing returns why the record does not prove its domain yet, for the person who has to set it, or nothing when it does.
func (p *prover) missing(ctx context.Context, organizationID string, record verification) (why string) {
	if _, busy := p.looking.LoadOrStore(organizationID, nil); busy {
		return "Another domain of yours is being verified at the moment. Try again."
	}
	defer p.looking.Delete(organizationID)
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	case <-ctx.Done():
		return "Too many domains are being verified at the moment. Try again."
	}
	// The dot at its end makes the name absolute: the search list of this machine is none of its business.
	values, err := p.records.LookupTXT(ctx, record.Name+".")
	var failed *net.DNSError
	switch {
	case err == nil && slices.Contains(values, record.Value):
		return ""
	case err == nil:
		return fmt.Sprintf("The TXT record %s has another value. Set the one given here beside it, or in its place.", record.Name)
	case errors.As(err, &failed) && failed.IsNotFound:
		return fmt.Sprintf("There is no TXT record %s yet. It can take a while until a new record is seen.", record.Name)
	}
	return fmt.Sprintf("DNS gave no answer about %s. Try again, and check the name servers of the domain.", record.Name)
}
