package api

import (
	"errors"
	"fmt"
	"net/http"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/dnsverify"
	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

// ownDomain is a domain as the portal returns it. The default domain has no verification, because it needs none.
type ownDomain struct {
	catalog.Domain
	Verification *dnsverify.Record `json:"verification"`
	Transfer     *domainTransfer   `json:"transfer"`
	LostAt       *catalog.Time     `json:"lostAt"`
}

// domainTransfer is the waiting period before a host moves to another organization.
type domainTransfer struct {
	Direction   string       `json:"direction"`
	StartedAt   catalog.Time `json:"startedAt"`
	CompletesAt catalog.Time `json:"completesAt"`
}

// The directions of transfers.
const (
	transferIn  = "in"
	transferOut = "out"
)

func ownDomainOf(d store.OwnDomain) ownDomain {
	own := ownDomain{Domain: d.Domain, LostAt: d.LostAt}
	if d.IsCustom {
		own.Verification = new(dnsverify.RecordOf(d.Host, d.Token))
	}
	if t := d.Transfer; t != nil {
		own.Transfer = &domainTransfer{Direction: transferOut, StartedAt: t.StartedAt, CompletesAt: t.CompletesAt}
		if t.Incoming {
			own.Transfer.Direction = transferIn
		}
	}
	return own
}

// domainList is the response of GET /portal/domains.
type domainList struct {
	Data []ownDomain `json:"data"`
}

// verifyResult is the response of a verification. Message says what is left to do, nil when nothing.
type verifyResult struct {
	ownDomain
	Message *string `json:"message"`
}

// requireCustomDomains returns an error for an organization whose plan does not include custom domains.
func requireCustomDomains(o catalog.Organization) error {
	if err := requirePlan(o); err != nil {
		return err
	}
	if !o.Plan.Terms().CustomDomains {
		return errNoCustomDomains
	}
	return nil
}

// listDomains serves GET /portal/domains for every plan, because domains stay after a downgrade.
func (s *Server) listDomains(x *requestState, r *http.Request, organization catalog.Organization) error {
	domains, err := s.Store.Domains(r.Context(), organization.ID)
	if err != nil {
		return err
	}
	list := domainList{Data: make([]ownDomain, len(domains))}
	for i, d := range domains {
		list.Data[i] = ownDomainOf(d)
	}
	return writeJSON(x, http.StatusOK, list)
}

// addDomain serves POST /portal/domains. It does not wait for the edges, because a pending domain does not resolve.
func (s *Server) addDomain(x *requestState, r *http.Request, organization catalog.Organization) error {
	host, err := readHost(x, r)
	if err != nil {
		return err
	}
	domain, token, _, err := s.Store.AddDomain(r.Context(), x.actor, organization.ID, x.require, host, false)
	if err != nil {
		return err
	}
	return writeJSON(x, http.StatusCreated, ownDomainOf(store.OwnDomain{Domain: domain, Token: token}))
}

func readHost(x *requestState, r *http.Request) (string, error) {
	body, err := readBody(x, r, decode.JSON)
	if err != nil {
		return "", err
	}
	o := decode.ReadKnown(body, "host")
	sent, ok := o.RequiredString("host")
	if err := o.Err(); err != nil || !ok {
		return "", err
	}
	return decode.CustomHost(sent)
}

// deleteDomain serves DELETE /portal/domains/{id} for every plan.
func (s *Server) deleteDomain(x *requestState, r *http.Request, organization catalog.Organization) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	change, err := s.Store.DeleteDomain(r.Context(), x.actor, organization.ID, x.require, id)
	if err != nil {
		return s.awaitDomainDeleted(x, r, err)
	}
	x.Header().Set(relay.Header, string(s.Relay.Await(r.Context(), change)))
	return writeJSON(x, http.StatusOK, deletedResponse{ID: id, Deleted: true})
}

// awaitDomainDeleted returns err. If err is store.ErrDomainNotFound, it first waits until all edges apply every earlier change: a client that got
// 404 for a domain, perhaps for a repeated request, must not see the domain resolve later.
func (s *Server) awaitDomainDeleted(x *requestState, r *http.Request, err error) error {
	if !errors.Is(err, store.ErrDomainNotFound) {
		return err
	}
	change, barrierErr := s.Store.Barrier(r.Context())
	if barrierErr != nil {
		return barrierErr
	}
	x.Header().Set(relay.Header, string(s.Relay.Await(r.Context(), change)))
	return err
}

// verifyDomain serves POST /portal/domains/{id}/verify. A missing record is a result and not an error.
func (s *Server) verifyDomain(x *requestState, r *http.Request, organization catalog.Organization) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	domain, err := s.Store.Domain(r.Context(), organization.ID, id)
	if err != nil {
		return s.awaitDomainDeleted(x, r, err)
	}
	record := dnsverify.RecordOf(domain.Host, domain.Token)
	var values []string
	// The owner of a host has to prove it only to end a transfer.
	if domain.Status != catalog.DomainVerified || domain.Transfer != nil {
		// The request holds no connection and no lock while it waits for name servers.
		var why string
		if values, why = s.verifier.Values(r.Context(), organization.ID, record); why != "" {
			return writeJSON(x, http.StatusOK, verifyResult{ownDomainOf(domain), &why})
		}
	}
	proofs := store.Proofs{Tokens: dnsverify.Tokens(values), At: domain.ReadAt}
	domain, change, err := s.Store.VerifyDomain(r.Context(), x.actor, organization.ID, x.require, id, proofs)
	if err != nil {
		return s.awaitDomainDeleted(x, r, err)
	}
	if domain.Status == catalog.DomainVerified {
		x.Header().Set(relay.Header, string(s.Relay.Await(r.Context(), change)))
	}
	return writeJSON(x, http.StatusOK, verifyResult{ownDomainOf(domain), nextStep(domain, record, values)})
}

// nextStep returns a message for the user about what is left to do for a domain, given the values of its TXT record. Nil: nothing.
func nextStep(d store.OwnDomain, record dnsverify.Record, values []string) *string {
	switch t := d.Transfer; {
	case t != nil && t.Incoming:
		return new(fmt.Sprintf("Another organization has this host, but its TXT record is gone. The host moves to you on %s unless that record is restored. Keep your own record until then.",
			dateOf(t)))
	case t != nil:
		return new(fmt.Sprintf("Another organization has proved this host, and your TXT record %s is missing. Restore it before %s to keep the host.", record.Name, dateOf(t)))
	case d.IsDefault || d.Status == catalog.DomainVerified:
		return nil
	case len(values) > 0:
		return new(fmt.Sprintf("The TXT record %s has a different value. Replace it with the value shown here, or add that value.", record.Name))
	}
	return new(fmt.Sprintf("There is no TXT record %s yet. It can take a while until a new record is seen.", record.Name))
}

// dateOf returns when a host moves, as text for the user.
func dateOf(t *store.Transfer) string { return t.CompletesAt.UTC().Format("2 January 2006, 15:04 UTC") }
