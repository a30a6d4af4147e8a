package main

import (
	"errors"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/ratelimit"
)

// authorized answers a request for the organization whose credential it carries.
type authorized func(x *exchange, r *http.Request, organization catalog.Organization) error

// withKey lets requests with a key of the tier through to h, counted under surface, in the order of checks of decisions.md
// 5: credential and suspension, tier, rate limit, plan, feature. Nothing of the request but its Authorization is looked at
// before that, unless look does.
func (s *server) withKey(look lookup, tier apikey.Tier, surface ratelimit.Surface, h authorized) handler {
	return func(x *exchange, r *http.Request) error {
		credential, err := authenticate(look, x, r)
		if err != nil {
			return err
		}
		organization := credential.Organization
		x.organizationID, x.keyID = organization.ID, credential.KeyID
		if organization.Suspended {
			return errCredential
		}
		if credential.Tier != tier {
			return errTier
		}
		keyID, err := uuid.Parse(credential.KeyID)
		if err != nil {
			return err
		}
		if wait := s.limiter.Take(r.Context(), surface, ratelimit.Key(keyID)); wait > 0 {
			s.metrics.limited(surface)
			return errRateLimited{wait}
		}
		if err := requireAPIAccess(organization); err != nil {
			return err
		}
		x.actor = store.Actor{
			Type: store.ActorKey, ID: credential.KeyID, DisplayKey: credential.DisplayKey, Address: s.client(r), RequestID: x.requestID,
		}
		return h(x, r, organization)
	}
}

// requirePlan refuses an organization that has not selected a plan.
func requirePlan(o catalog.Organization) error {
	if o.Plan == nil {
		return errPlanNotSelected
	}
	return nil
}

// requireAPIAccess refuses an organization whose plan does not have keys.
func requireAPIAccess(o catalog.Organization) error {
	if err := requirePlan(o); err != nil {
		return err
	}
	if !o.Plan.Terms().APIAccess {
		return errNoAPIAccess
	}
	return nil
}

// lookup finds whose key has the hash, or store.ErrNotFound.
type lookup func(x *exchange, r *http.Request, hash [32]byte) (store.Credential, error)

// keysOf looks keys up in a store.
func keysOf(keys *store.Store) lookup {
	return func(_ *exchange, r *http.Request, hash [32]byte) (store.Credential, error) {
		return keys.Authenticate(r.Context(), hash)
	}
}

// keyAndLink looks up the key and reads the link that the path names, if it names one: what backends ask for the most takes one round trip
// to Postgres. The link waits in the exchange for whoever may have it.
func (s *server) keyAndLink(x *exchange, r *http.Request, hash [32]byte) (credential store.Credential, err error) {
	id, err := pathID(r)
	if err != nil {
		return s.store.Authenticate(r.Context(), hash) // the id is refused when its turn comes
	}
	credential, x.link, err = s.store.AuthenticateWithLink(r.Context(), hash, id)
	return credential, err
}

// authenticate returns what the request's key stands for. The error is errCredential whatever is wrong with the key, so that
// a prober learns nothing from it.
//
// Nor from the time it takes: whatever has the form of a key costs the same one round trip, by its hash, whether the key is unknown, replaced,
// over or its organization suspended, and nothing after it. What can't be a key costs no query, and that shows: but the form, checksum
// included, is public (decisions.md 6), so that it says nothing about any key there is. How near a wrong key came to a right one shows
// nowhere: the index compares hashes.
func authenticate(look lookup, x *exchange, r *http.Request) (store.Credential, error) {
	raw, ok := bearer(r.Header)
	if !ok {
		return store.Credential{}, errCredential
	}
	if _, ok := apikey.Parse(raw); !ok {
		return store.Credential{}, errCredential
	}
	credential, err := look(x, r, apikey.Hash(raw))
	if errors.Is(err, store.ErrNotFound) {
		return store.Credential{}, errCredential
	}
	return credential, err
}

// bearer returns the token of the one Authorization header (RFC 6750, 2.1; the scheme in any case, RFC 9110, 11.1).
func bearer(header http.Header) (token string, ok bool) {
	values := header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimLeft(token, " "), true
}
