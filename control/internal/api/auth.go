package api

import (
	"errors"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"deeplink/control/internal/keyguard"
	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/clientip"
	"deeplink/shared/ratelimit"
)

// orgHandler handles a request for the organization of its credential.
type orgHandler func(x *requestState, r *http.Request, organization catalog.Organization) error

// withKey calls h for requests with an API key of the tier. It checks, in this order: credential and suspension, tier, rate limit of the
// surface, plan, feature. Before that it reads nothing of the request except Authorization, unless look does.
func (s *Server) withKey(look keyLookup, tier apikey.Tier, surface ratelimit.Surface, h orgHandler) handler {
	return s.withKeyLimited(look, tier, s.limitedBy(surface), h)
}

// limit counts a request under a rate-limit key. The error is errRateLimited.
type limit func(ratelimit.Key) error

// limitedBy counts requests on a surface.
func (s *Server) limitedBy(surface ratelimit.Surface) limit {
	return func(key ratelimit.Key) error {
		if wait := s.limiter.Take(surface, key); wait > 0 {
			s.metrics.limited(surface)
			return errRateLimited{wait}
		}
		return nil
	}
}

// bulkLimitedBy counts bulk requests on a surface and on that of bulk requests.
func (s *Server) bulkLimitedBy(surface ratelimit.Surface) limit {
	return func(key ratelimit.Key) error {
		if wait := s.limiter.TakeBoth(surface, ratelimit.LinkBulk, key); wait > 0 {
			s.metrics.limited(ratelimit.LinkBulk)
			return errRateLimited{wait}
		}
		return nil
	}
}

// withKeyLimited is withKey with any limit.
func (s *Server) withKeyLimited(look keyLookup, tier apikey.Tier, limited limit, h orgHandler) handler {
	return func(x *requestState, r *http.Request) error {
		credential, err := s.authenticate(look, x, r)
		if err != nil {
			return err
		}
		organization := credential.Organization
		x.organizationID, x.keyID = organization.ID, credential.KeyID
		if err := requireActive(organization); err != nil {
			return err
		}
		if credential.Tier != tier {
			return errTier
		}
		keyID, err := uuid.Parse(credential.KeyID)
		if err != nil {
			return err
		}
		if err := limited(ratelimit.Key(keyID)); err != nil {
			return err
		}
		if err := requireAPIAccess(organization); err != nil {
			return err
		}
		x.actor = store.KeyActor(credential, s.client(r), x.requestID)
		x.require = all(requireActive, requireAPIAccess)
		return h(x, r, organization)
	}
}

// all returns a requirement that checks all requirements, and returns the error of the first that is not met.
func all(requirements ...store.Requirement) store.Requirement {
	return func(o catalog.Organization) error {
		for _, require := range requirements {
			if err := require(o); err != nil {
				return err
			}
		}
		return nil
	}
}

// requireActive returns an error for a suspended organization.
func requireActive(o catalog.Organization) error {
	if o.Suspended {
		return errCredential
	}
	return nil
}

// requirePlan returns an error for an organization without a plan.
func requirePlan(o catalog.Organization) error {
	if o.Plan == nil {
		return errPlanNotSelected
	}
	return nil
}

// requireAPIAccess returns an error for an organization whose plan does not include API keys.
func requireAPIAccess(o catalog.Organization) error {
	if err := requirePlan(o); err != nil {
		return err
	}
	if !o.Plan.Terms().APIAccess {
		return errNoAPIAccess
	}
	return nil
}

// keyLookup returns the credential of the API key with the hash, or store.ErrNotFound.
type keyLookup func(x *requestState, r *http.Request, hash [32]byte) (store.Credential, error)

// lookUpIn looks API keys up in a store.
func lookUpIn(keys *store.Store) keyLookup {
	return func(_ *requestState, r *http.Request, hash [32]byte) (store.Credential, error) {
		return keys.Authenticate(r.Context(), hash)
	}
}

// keyAndLink looks up the API key and reads the link in the path with the same statement, so that the most frequent requests of backends take
// one round trip to Postgres. The link is kept on the request; the handler uses it after authorization.
func (s *Server) keyAndLink(x *requestState, r *http.Request, hash [32]byte) (credential store.Credential, err error) {
	target, err := pathLink(r)
	if err != nil {
		return s.Store.Authenticate(r.Context(), hash) // the handler returns the error of the id
	}
	credential, x.link, err = s.Store.AuthenticateWithLink(r.Context(), hash, target)
	x.linkRead = err == nil
	return credential, err
}

// authenticate returns the credential of the request's API key. Every invalid key gets the same error, errCredential, so that a client cannot
// learn anything about keys by trying.
//
// The response time does not help either. A well-formed key costs one query by its hash, whether it is unknown, replaced, expired, or of a
// suspended organization. From an address with too many invalid keys, all keys wait for the same batch (package keyguard). Only a malformed
// key gets its error without a query; the format and its checksum are public. The index compares hashes, so the time does not show how many
// characters of a key are correct.
func (s *Server) authenticate(look keyLookup, x *requestState, r *http.Request) (credential store.Credential, err error) {
	raw, ok := bearer(r.Header)
	if !ok {
		return store.Credential{}, errCredential
	}
	if _, ok := apikey.Parse(raw); !ok {
		return store.Credential{}, errCredential
	}
	hash, found := apikey.Hash(raw), false
	err = s.keys.Do(r.Context(), hash, clientip.Key(s.client(r)), func() (valid bool, err error) {
		credential, err = look(x, r, hash)
		if errors.Is(err, store.ErrNotFound) {
			return false, nil
		}
		found = err == nil
		return found && !credential.Organization.Suspended, err
	})
	if errors.Is(err, keyguard.ErrUnknown) || err == nil && !found {
		return store.Credential{}, errCredential
	}
	return credential, err
}

// bearer returns the token of the only Authorization header (RFC 6750, 2.1). The scheme is case-insensitive (RFC 9110, 11.1).
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
