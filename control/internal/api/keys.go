package api

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"deeplink/control/internal/decode"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/ratelimit"
)

// maxGrace bounds how long a replaced API key still works.
const maxGrace = 7 * 24 * time.Hour

// keysResponse is the response of GET /portal/api-keys.
type keysResponse struct {
	SDKKey    *maskedKey `json:"sdkKey"`
	ServerKey *maskedKey `json:"serverKey"`
	Locked    bool       `json:"locked"`
}

// maskedKey is the part of an API key that is shown after its creation.
type maskedKey struct {
	Prefix     string `json:"prefix"`
	DisplayKey string `json:"displayKey"`
}

// listKeys serves GET /portal/api-keys.
func (s *Server) listKeys(x *requestState, r *http.Request, organization catalog.Organization) error {
	if requireAPIAccess(organization) != nil {
		return writeJSON(x, http.StatusOK, keysResponse{Locked: true})
	}
	display, err := s.Store.Keys(r.Context(), organization.ID)
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
	return writeJSON(x, http.StatusOK, keysResponse{SDKKey: masked(apikey.Client), ServerKey: masked(apikey.Server)})
}

// regenerateKey serves POST /portal/api-keys/{tier}/regenerate. It consumes the attempt's point before it validates anything, so an
// attempt with an unknown tier consumes a point too. Without the feature it consumes none, as withSession does without the role.
func (s *Server) regenerateKey(x *requestState, r *http.Request, organization catalog.Organization) error {
	id, err := uuid.Parse(organization.ID)
	if err != nil {
		return err
	}
	if wait := s.limiter.Take(ratelimit.Regeneration, ratelimit.Key(id)); wait > 0 {
		s.metrics.limited(ratelimit.Regeneration)
		return errRateLimited{wait}
	}
	tier, badTier := keyTier(r)
	grace, badGrace := readGrace(x, r)
	if badTier != nil && !blocksTierError(badGrace) {
		badGrace = nil
	}
	if err := together(refuseKey(r.Header), decode.Join(badTier, badGrace)); err != nil {
		return err
	}
	key, err := s.Store.ReplaceKey(r.Context(), x.actor, organization.ID, x.require, tier, grace)
	if err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, key)
}

// keyTier returns the tier in the path.
func keyTier(r *http.Request) (apikey.Tier, error) {
	tier, ok := apikey.ParseTier(chi.URLParam(r, "tier"))
	if !ok {
		return "", decode.FieldError("tier", "must be SERVER or CLIENT")
	}
	return tier, nil
}

// readGrace reads the optional body of a regeneration. An empty body counts as absent, whatever its framing and type.
func readGrace(x *requestState, r *http.Request) (time.Duration, error) {
	if r.ContentLength == 0 {
		return 0, nil
	}
	if r.ContentLength < 0 { // chunked: only reading shows whether there is a body
		body := bufio.NewReader(r.Body)
		if _, err := body.Peek(1); errors.Is(err, io.EOF) {
			return 0, nil
		}
		r.Body = struct {
			io.Reader
			io.Closer
		}{body, r.Body}
	}
	body, err := readBody(x, r, decode.JSON)
	if err != nil {
		return 0, err
	}
	o := decode.ReadKnown(body, "graceSeconds")
	grace := time.Duration(o.Integer("graceSeconds", 0, 0, int(maxGrace/time.Second))) * time.Second
	return grace, o.Err()
}

// blocksTierError reports whether an error of readGrace belongs in the response for an unknown tier: a bad field, or a request that did not
// arrive whole. What else is wrong with the body, its media type for example, must not hide that the tier is unknown.
func blocksTierError(err error) bool {
	var bad catalog.Invalid
	return errors.As(err, &bad) || errors.Is(err, decode.ErrTimeout) || errors.Is(err, decode.ErrUnreadable)
}
