// Package dnsverify looks up the TXT records by which organizations prove that a host is theirs. It never connects to a host that a
// customer names, and it decides nothing: that is the work of store.
package dnsverify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"deeplink/shared/catalog"
)

const (
	// LookupTimeout bounds one DNS lookup, and is shorter than the time a request has.
	LookupTimeout = 5 * time.Second
	// maxLookups bounds the concurrent lookups of all requests. Each organization may have one, because the owner of a domain decides how
	// slow its name servers are.
	maxLookups = 32
)

// Resolver looks up TXT records, as [net.Resolver] does.
type Resolver interface {
	LookupTXT(ctx context.Context, name string) ([]string, error)
}

// NewResolver returns a resolver that queries the DNS server at address, or the DNS servers of the system when address is empty.
func NewResolver(address string) *net.Resolver {
	// Go's own resolver accepts responses of 64 KiB at most, does not read the machine's hosts file, and ends with its context.
	resolver := &net.Resolver{PreferGo: true}
	if address != "" {
		resolver.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	}
	return resolver
}

// LookupTXT returns the values of the TXT records of a name, none when the records do not exist. An error means that a server failed or did
// not respond in time, so that it is unknown whether they exist.
func LookupTXT(ctx context.Context, resolver Resolver, name string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, LookupTimeout)
	defer cancel()
	// The final dot makes the name absolute, so that the resolver ignores the search list of this machine.
	values, err := resolver.LookupTXT(ctx, name+".")
	if failed := (*net.DNSError)(nil); errors.As(err, &failed) && failed.IsNotFound && !failed.IsTimeout && !failed.IsTemporary {
		return nil, nil
	}
	return values, err
}

// Tokens returns the verification tokens in the values of TXT records.
func Tokens(values []string) (tokens []string) {
	for _, value := range values {
		if token, ok := strings.CutPrefix(value, ValuePrefix); ok {
			tokens = append(tokens, token)
		}
	}
	return tokens
}

// Verifier looks up verification records for requests, with bounds on concurrent lookups. It is safe for concurrent use.
type Verifier struct {
	resolver Resolver
	slots    chan struct{}
	busy     sync.Map // ids of the organizations with a lookup in progress
}

// NewVerifier returns a verifier that queries resolver.
func NewVerifier(resolver Resolver) *Verifier {
	return &Verifier{resolver: resolver, slots: make(chan struct{}, maxLookups)}
}

// Values returns the values of a verification record for an organization. why is a message for the user when the lookup was not possible.
func (v *Verifier) Values(ctx context.Context, organizationID string, record Record) (values []string, why string) {
	if _, busy := v.busy.LoadOrStore(organizationID, nil); busy {
		return nil, "Another domain of yours is being verified at the moment. Try again."
	}
	defer v.busy.Delete(organizationID)
	ctx, cancel := context.WithTimeout(ctx, LookupTimeout)
	defer cancel()
	select {
	case v.slots <- struct{}{}:
		defer func() { <-v.slots }()
	case <-ctx.Done():
		return nil, "Too many domains are being verified at the moment. Try again."
	}
	values, err := LookupTXT(ctx, v.resolver, record.Name)
	if err != nil {
		return nil, fmt.Sprintf("DNS gave no answer about %s. Try again, and check the name servers of the domain.", record.Name)
	}
	return values, ""
}

// ValuePrefix precedes the token in a verification record.
const ValuePrefix = "deeplink-verification="

// Record is the DNS record that proves that a host is an organization's, as the API returns it.
type Record struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

// RecordOf returns the record for a host.
func RecordOf(host, token string) Record {
	return Record{Type: "TXT", Name: catalog.VerificationLabel + host, Value: ValuePrefix + token}
}
