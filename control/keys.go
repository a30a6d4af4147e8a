package main

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/ratelimit"
)

// maxGrace bounds for how long a replaced key goes on (decisions.md 6).
const maxGrace = 7 * 24 * time.Hour

// keyListing is the answer of GET /portal/api-keys (interface.md 2).
type keyListing struct {
	SDKKey    *maskedKey `json:"sdkKey"`
	ServerKey *maskedKey `json:"serverKey"`
	Locked    bool       `json:"locked"`
}

// maskedKey is all that is ever shown again of a key.
type maskedKey struct {
	Prefix     string `json:"prefix"`
	DisplayKey string `json:"displayKey"`
}

// listKeys answers GET /portal/api-keys.
func (s *server) listKeys(x *exchange, r *http.Request, organization catalog.Organization) error {
	if requireAPIAccess(organization) != nil {
		return writeJSON(x, http.StatusOK, keyListing{Locked: true})
	}
	display, err := s.store.Keys(r.Context(), organization.ID)
	if err != nil {
		return err
	}
	masked := func(tier apikey.Tier) *maskedKey {
		key, ok := display[tier]
		if !ok {
			return nil
		}
		return &maskedKey{apikey.Prefix(tier), key}
	}
	return writeJSON(x, http.StatusOK, keyListing{SDKKey: masked(apikey.Client), ServerKey: masked(apikey.Server)})
}

// regenerateKey answers POST /portal/api-keys/{tier}/regenerate. An attempt costs its point before anything about it is looked at: an
// unknown tier costs one, too (interface.md 4.2).
func (s *server) regenerateKey(x *exchange, r *http.Request, organization catalog.Organization) error {
	if err := requireAPIAccess(organization); err != nil {
		return err
	}
	id, err := uuid.Parse(organization.ID)
	if err != nil {
		return err
	}
	if wait := s.limiter.Take(r.Context(), ratelimit.Regeneration, ratelimit.Key(id)); wait > 0 {
		s.metrics.limited(ratelimit.Regeneration)
		return errRateLimited{wait}
	}
	tier, badTier := keyTier(r)
	grace, badGrace := readGrace(x, r)
	if err := invalid(badTier, badGrace); err != nil {
		return err
	}
	key, err := s.store.By(x.actor).ReplaceKey(r.Context(), organization.ID, tier, grace)
	if err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, key)
}

// keyTier returns the tier in the path.
func keyTier(r *http.Request) (apikey.Tier, error) {
	tier, ok := apikey.ParseTier(chi.URLParam(r, "tier"))
	if !ok {
		return "", fault("tier", "must be SERVER or CLIENT")
	}
	return tier, nil
}

// readGrace reads the body of a regeneration, which may be absent.
func readGrace(x *exchange, r *http.Request) (time.Duration, error) {
	if r.ContentLength == 0 {
		return 0, nil
	}
	body, err := readBody(x, r, mediaJSON)
	if err != nil {
		return 0, err
	}
	o := readKnown(body, "graceSeconds")
	grace := time.Duration(o.integer("graceSeconds", 0, 0, int(maxGrace/time.Second))) * time.Second
	return grace, o.err()
}
