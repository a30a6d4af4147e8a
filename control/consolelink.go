package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"deeplink/control/internal/api"
	"deeplink/control/internal/session"
	"deeplink/control/internal/signin"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

type consoleLinkCommand struct {
	consoleOrigin
	Org  string        `required:"" help:"Key of the organization."`
	Role string        `required:"" help:"member, admin or owner."`
	TTL  time.Duration `name:"ttl" default:"5m" help:"How long the link is valid, 1m to 15m."`
}

// Help implements kong's detailed help.
func (*consoleLinkCommand) Help() string {
	return "Prints a link that signs one person in to the console, once, for this organization and role. It needs no identity provider. The session lives for " +
		"at most 8 hours. Send the link over a channel that only this person reads: control cannot know who opens it. An organization has at most 20 unspent " +
		"links; a further one replaces the oldest."
}

// Validate implements kong's check of a command.
func (c *consoleLinkCommand) Validate() error {
	switch {
	case c.URL == "":
		return errors.New("--console-url ($CONSOLE_URL) is required")
	case session.Role(c.Role) != session.Member && session.Role(c.Role) != session.Admin && session.Role(c.Role) != session.Owner:
		return errors.New("--role must be member, admin or owner")
	case c.TTL < signin.MinLinkTime || c.TTL > signin.MaxLinkTime:
		return fmt.Errorf("--ttl must be from %v to %v", signin.MinLinkTime, signin.MaxLinkTime)
	}
	return c.consoleOrigin.check()
}

// consoleLink is the result of control console-link.
type consoleLink struct {
	URL          string       `json:"url"`
	ExpiresAt    catalog.Time `json:"expiresAt"`
	Organization struct {
		ID     string `json:"id"`
		OrgKey string `json:"orgKey"`
		Name   string `json:"name"`
	} `json:"organization"`
	Role string `json:"role"`
}

var errSuspended = errors.New("the organization is suspended; its members cannot sign in")

// Run implements control console-link.
func (c *consoleLinkCommand) Run(t *env) error {
	return t.read(sharedHost{}, func(ctx context.Context, s *store.Store) error {
		o, err := organization(ctx, s, c.Org)
		if err != nil {
			return err
		}
		active := func(o catalog.Organization) error {
			if o.Suspended {
				return errSuspended
			}
			return nil
		}
		url, link, err := signin.NewLink(ctx, s, operatorActor(), active, c.URL, store.ConsoleLink{Organization: o, Role: c.Role, Operator: login()}, c.TTL)
		if err != nil {
			return err
		}
		result := consoleLink{URL: url, ExpiresAt: catalog.Time{Time: link.ExpiresAt}, Role: c.Role}
		result.Organization.ID, result.Organization.OrgKey, result.Organization.Name = o.ID, o.OrgKey, o.Name
		return t.print(result)
	})
}

type sessionListCommand struct {
	Org string `required:"" help:"Key of the organization."`
}

// Run implements control session list.
func (c *sessionListCommand) Run(t *env) error {
	return t.read(sharedHost{}, func(ctx context.Context, s *store.Store) error {
		o, err := organization(ctx, s, c.Org)
		if err != nil {
			return err
		}
		// CONSOLE_SESSION_IDLE is a setting of control serve: here a session that ended less than its maximum ago may still be listed.
		sessions, err := s.ConsoleSessions(ctx, o.ID, store.ConsolePerson{}, time.Now(), time.Now().Add(-maxSessionIdle))
		if err != nil {
			return err
		}
		all := make([]any, len(sessions))
		for i, one := range sessions {
			all[i] = api.NewSessionEntry(one, "")
		}
		return t.print(all)
	})
}

type sessionRevokeCommand struct {
	Org     string `required:"" help:"Key of the organization."`
	ID      string `name:"id" help:"Id of the session to end."`
	Subject string `help:"Ends all sessions of the person with this subject."`
	All     bool   `help:"Ends all sessions of the organization."`
}

// Validate implements kong's check of a command.
func (c *sessionRevokeCommand) Validate() error {
	given := 0
	for _, is := range []bool{c.ID != "", c.Subject != "", c.All} {
		if is {
			given++
		}
	}
	if given != 1 {
		return errors.New("name exactly one of --id, --subject and --all")
	}
	if _, ok := catalog.ValidUUID(c.ID); c.ID != "" && !ok {
		return errors.New("--id must be a UUID")
	}
	return nil
}

// revokedSessions is the result of control session revoke.
type revokedSessions struct {
	OrgKey  string `json:"orgKey"`
	Revoked int    `json:"revoked"`
}

// Run implements control session revoke.
func (c *sessionRevokeCommand) Run(t *env) error {
	return t.read(sharedHost{}, func(ctx context.Context, s *store.Store) error {
		o, err := organization(ctx, s, c.Org)
		if err != nil {
			return err
		}
		id, _ := catalog.ValidUUID(c.ID)
		revoked, err := s.RevokeConsoleSessions(ctx, operatorActor(), o.ID, store.ConsolePerson{SessionID: id, Subject: c.Subject}, time.Now().Add(-maxSessionIdle))
		if err != nil {
			return err
		}
		if revoked == 0 && c.ID != "" {
			return fmt.Errorf("session %s of organization %q: %w", c.ID, c.Org, store.ErrNotFound)
		}
		return t.print(revokedSessions{o.OrgKey, revoked})
	})
}
