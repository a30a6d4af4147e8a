package main

import (
	"errors"
	"net/http"

	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

// verification is the DNS record that proves a domain (decisions.md 2).
type verification struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

func verificationOf(host, token string) verification {
	return verification{Type: "TXT", Name: catalog.VerificationLabel + host, Value: "deeplink-verification=" + token}
}

// ownDomain is a domain as the portal answers it. The default domain needs no verification and has none.
type ownDomain struct {
	catalog.Domain
	Verification *verification `json:"verification"`
}

func ownDomainOf(d store.OwnDomain) ownDomain {
	own := ownDomain{Domain: d.Domain}
	if d.IsCustom {
		own.Verification = new(verificationOf(d.Host, d.Token))
	}
	return own
}

// domainList is the answer of GET /portal/domains.
type domainList struct {
	Data []ownDomain `json:"data"`
}

// judgement is the answer of a verification. Message tells why the domain is still pending, and is nil when it is verified.
type judgement struct {
	ownDomain
	Message *string `json:"message"`
}

// requireCustomDomains refuses an organization whose plan does not have custom domains.
func requireCustomDomains(o catalog.Organization) error {
	if err := requirePlan(o); err != nil {
		return err
	}
	if !o.Plan.Terms().CustomDomains {
		return errNoCustomDomains
	}
	return nil
}

// listDomains answers GET /portal/domains, whatever the plan: links are on domains, and those of a larger plan stay after it.
func (s *server) listDomains(x *exchange, r *http.Request, organization catalog.Organization) error {
	domains, err := s.store.Domains(r.Context(), organization.ID)
	if err != nil {
		return err
	}
	list := domainList{Data: make([]ownDomain, len(domains))}
	for i, d := range domains {
		list.Data[i] = ownDomainOf(d)
	}
	return writeJSON(x, http.StatusOK, list)
}

// addDomain answers POST /portal/domains. Nothing resolves on a pending domain, so there is nothing to wait for.
func (s *server) addDomain(x *exchange, r *http.Request, organization catalog.Organization) error {
	if err := requireCustomDomains(organization); err != nil {
		return err
	}
	host, err := readHost(x, r)
	if err != nil {
		return err
	}
	domain, token, _, err := s.store.By(x.actor).AddDomain(r.Context(), organization.ID, host, false)
	if err != nil {
		return err
	}
	return writeJSON(x, http.StatusCreated, ownDomainOf(store.OwnDomain{Domain: domain, Token: token}))
}

func readHost(x *exchange, r *http.Request) (string, error) {
	body, err := readBody(x, r, mediaJSON)
	if err != nil {
		return "", err
	}
	o := readKnown(body, "host")
	sent, ok := o.text("host")
	if err := o.err(); err != nil || !ok {
		return "", err
	}
	return readCustomHost(sent)
}

// deleteDomain answers DELETE /portal/domains/{id}, whatever the plan.
func (s *server) deleteDomain(x *exchange, r *http.Request, organization catalog.Organization) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	change, err := s.store.By(x.actor).DeleteDomain(r.Context(), organization.ID, id)
	if err != nil {
		return s.goneDomain(x, r, err)
	}
	x.Header().Set(relay.Header, string(s.relay.Await(r.Context(), change)))
	return writeJSON(x, http.StatusOK, deletion{ID: id, Deleted: true})
}

// goneDomain returns err. When it says that the domain is not there, it first waits until the edges know that of every domain: who is
// told so, perhaps by a repeated call, must not see it resolve afterwards (freshness.md, Control, 4).
func (s *server) goneDomain(x *exchange, r *http.Request, err error) error {
	if !errors.Is(err, store.ErrDomainNotFound) {
		return err
	}
	change, barrierErr := s.store.Barrier(r.Context())
	if barrierErr != nil {
		return barrierErr
	}
	x.Header().Set(relay.Header, string(s.relay.Await(r.Context(), change)))
	return err
}

// verifyDomain answers POST /portal/domains/{id}/verify. That the record is not there yet is an answer, not an error.
func (s *server) verifyDomain(x *exchange, r *http.Request, organization catalog.Organization) error {
	if err := requireCustomDomains(organization); err != nil {
		return err
	}
	id, err := pathID(r)
	if err != nil {
		return err
	}
	domain, err := s.store.Domain(r.Context(), organization.ID, id)
	if err != nil {
		return s.goneDomain(x, r, err)
	}
	if domain.Status != catalog.DomainVerified {
		// No connection and no lock is held for as long as other people's servers take.
		if why := s.prover.missing(r.Context(), organization.ID, verificationOf(domain.Host, domain.Token)); why != "" {
			return writeJSON(x, http.StatusOK, judgement{ownDomainOf(domain), &why})
		}
	}
	domain, change, err := s.store.By(x.actor).VerifyDomain(r.Context(), organization.ID, id)
	if err != nil {
		return s.goneDomain(x, r, err)
	}
	x.Header().Set(relay.Header, string(s.relay.Await(r.Context(), change)))
	return writeJSON(x, http.StatusOK, judgement{ownDomainOf(domain), nil})
}
