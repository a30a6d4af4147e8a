package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/dnsverify"
	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/feed"
)

type domainAddCommand struct {
	propagationFlags
	Key      string `arg:"" help:"Key of the organization."`
	Host     string `arg:"" help:"Host name."`
	Verified bool   `help:"Verify the host without a DNS lookup, also if it is already pending. Set the TXT record all the same: without it, another organization that proves the host gets it after 7 days."`
}

// Run implements control domain add.
func (c *domainAddCommand) Run(t *env) error {
	host, err := decode.CustomHost(c.Host)
	if err != nil {
		return fmt.Errorf("%w: %w", errArgument, err)
	}
	var d catalog.Domain
	var token string
	propagation, err := t.change(c.propagationFlags, func(ctx context.Context, s *store.Store) (change feed.Change, err error) {
		o, err := organization(ctx, s, c.Key)
		if err != nil {
			return feed.Change{}, err
		}
		d, token, change, err = s.AddDomain(ctx, operatorActor(), o.ID, store.Unconditional, host, c.Verified)
		return change, err
	})
	if err != nil {
		return err
	}
	return t.print(struct {
		catalog.Domain
		Verification dnsverify.Record  `json:"verification"`
		Propagation  relay.Propagation `json:"propagation"`
	}{d, dnsverify.RecordOf(d.Host, token), propagation})
}

type domainRemoveCommand struct {
	propagationFlags
	Key  string `arg:"" help:"Key of the organization."`
	Host string `arg:"" help:"Host name."`
}

type removedDomain struct {
	ID          string            `json:"id"`
	Host        string            `json:"host"`
	Deleted     bool              `json:"deleted"`
	Propagation relay.Propagation `json:"propagation"`
}

// Run implements control domain remove. Like the API, it reports a missing domain only when no edge serves it any more.
func (c *domainRemoveCommand) Run(t *env) error {
	host, err := catalog.CheckHost(c.Host)
	if err != nil {
		return fmt.Errorf("%w: %w", errArgument, err)
	}
	var id string
	missing := false
	propagation, err := t.change(c.propagationFlags, func(ctx context.Context, s *store.Store) (feed.Change, error) {
		o, err := organization(ctx, s, c.Key)
		if err != nil {
			return feed.Change{}, err
		}
		all, err := s.Domains(ctx, o.ID)
		if err != nil {
			return feed.Change{}, err
		}
		if i := slices.IndexFunc(all, func(d store.OwnDomain) bool { return d.IsCustom && d.Host == host }); i >= 0 {
			id = all[i].ID
			change, err := s.DeleteDomain(ctx, operatorActor(), o.ID, store.Unconditional, id)
			if !errors.Is(err, store.ErrDomainNotFound) {
				return change, err
			}
		}
		missing = true
		return s.Barrier(ctx)
	})
	switch {
	case errors.Is(err, store.ErrDomainInUse):
		return fmt.Errorf("domain %q: %w; delete them or move them to another domain first", host, err)
	case err != nil:
		return err
	case missing:
		return fmt.Errorf("domain %q: %w", host, store.ErrDomainNotFound)
	}
	return t.print(removedDomain{id, host, true, propagation})
}
