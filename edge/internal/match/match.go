// Package match mints and redeems match tokens, with which an app that was just installed learns which link its user clicked. It
// promises that a token matches once, on whichever edge and across restarts, and that every token without a match gets the same response.
package match

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"

	"deeplink/edge/internal/link"
	"deeplink/edge/internal/matchtoken"
	"deeplink/edge/internal/origin"
	"deeplink/shared/admin"
	"deeplink/shared/catalog"
	"deeplink/shared/envelope"
	"deeplink/shared/ratelimit"
)

const (
	// redeemTimeout bounds one redemption, including the wait for a connection.
	redeemTimeout = 5 * time.Second
	// redeemConnections is the size of the connection pool for redemptions. Four connections do thousands of redemptions a second.
	// Clicks do not wait for them: each client connection has its own goroutine, and link lookups have their own pool.
	redeemConnections = 4
	// limitPrefix is the prefix of the rate limit's keys in Redis. All edges share it, so that they count together.
	limitPrefix = "deeplink:limit:"
)

// ErrNotJSON means that the request's body is not application/json, or is compressed.
var ErrNotJSON = errors.New("match: the body is not JSON")

// InvalidError lists what is wrong with the fields of a body.
type InvalidError struct{ Details []envelope.Detail }

// Error implements error.
func (e *InvalidError) Error() string { return fmt.Sprintf("match: %d invalid fields", len(e.Details)) }

// Options are the settings of [Open].
type Options struct {
	DatabaseURL, RedisURL, LinkBaseURL string
	// Keys sign and verify tokens. nil: no tokens are minted, and none matches.
	Keys *matchtoken.Keys
}

// Tokens mints and redeems match tokens. It is safe for concurrent use.
type Tokens struct {
	keys     *matchtoken.Keys
	base     string // LINK_BASE_URL
	redeemer *origin.Redeemer
	counter  redis.UniversalClient
	limiter  *ratelimit.Limiter
	// The number of tokens by result: matched; spent before or of a link that does not resolve; forged, malformed or too old.
	matched, spent, invalid atomic.Int64
}

// Open connects in the background: it does not fail if Postgres or Redis is down.
func Open(ctx context.Context, o Options) (*Tokens, error) {
	redeemer, err := origin.OpenRedeemer(ctx, o.DatabaseURL, redeemConnections)
	if err != nil {
		return nil, err
	}
	counter, err := ratelimit.Open(o.RedisURL, ratelimit.Connections)
	if err != nil {
		redeemer.Close()
		return nil, err
	}
	t := &Tokens{keys: o.Keys, base: o.LinkBaseURL, redeemer: redeemer, counter: counter}
	t.limiter = ratelimit.New(ratelimit.NewRedis(t.counter, limitPrefix), ratelimit.Match)
	return t, nil
}

// Close closes the connections and waits for those in use.
func (t *Tokens) Close() {
	t.redeemer.Close()
	t.counter.Close()
	t.limiter.Wait()
}

// Enabled reports whether there is a key.
func (t *Tokens) Enabled() bool { return t.keys != nil }

// Append appends a new token for a click on this link. Tokens must be enabled.
func (t *Tokens) Append(dst []byte, link [16]byte, now time.Time) []byte {
	return t.keys.Append(dst, link, now)
}

// Wait counts a request of a client and returns how long the client has to wait: 0 if the request is within the rate limit.
func (t *Tokens) Wait(client ratelimit.Key) time.Duration {
	return t.limiter.Take(ratelimit.Match, client)
}

// noMatch is the response to every token that is spent, unknown, forged or too old, or whose link does not resolve.
var noMatch = []byte(`{"matched":false,"matchType":null,"link":null}`)

// matchResponse is the response to a valid token.
type matchResponse struct {
	Matched   bool               `json:"matched"`
	MatchType string             `json:"matchType"`
	Link      catalog.PublicLink `json:"link"`
	ClickedAt catalog.Time       `json:"clickedAt"`
	MatchedAt catalog.Time       `json:"matchedAt"`
}

// Redeem returns the body of the response to POST /match: the token's link for the first client that presents the token, otherwise the
// same response for every reason. It verifies tokens before it queries Postgres, so that forged tokens cost nothing and their timing
// reveals nothing about existing ones.
//
// Errors: [ErrNotJSON], *[InvalidError], or that of the database.
func (t *Tokens) Redeem(header *fasthttp.RequestHeader, body []byte, now time.Time) ([]byte, error) {
	if !isJSON(header) && (len(body) > 0 || len(header.ContentType()) > 0) {
		return nil, ErrNotJSON
	}
	r, details := parseRequest(body)
	if len(details) > 0 {
		return nil, &InvalidError{details}
	}
	token, matchType := t.verify(&r, now)
	if matchType == "" {
		t.invalid.Add(1)
		return noMatch, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), redeemTimeout)
	defer cancel()
	redemption, err := t.redeemer.Redeem(ctx, token, r.deviceID, now)
	if err != nil {
		return nil, err
	}
	if redemption == nil {
		t.spent.Add(1)
		return noMatch, nil
	}
	found := redemption.Link
	found.URL = catalog.ShortURL(t.base, redemption.OrgKey, redemption.Host, found.ShortCode)
	t.matched.Add(1)
	return link.Marshal(matchResponse{true, matchType, found.Public(), catalog.Time{Time: token.ClickedAt}, catalog.Time{Time: redemption.MatchedAt}})
}

// verify returns the first of the request's tokens that one of our keys made and that is not too old, and the match type. The match type
// is empty if there is no such token.
func (t *Tokens) verify(r *request, now time.Time) (token matchtoken.Token, matchType string) {
	if t.keys == nil {
		return token, ""
	}
	if token, ok := t.keys.Read(r.clipboardToken, now); ok {
		return token, "clipboard"
	}
	if token, ok := t.keys.Read(referrerToken(r.installReferrer), now); ok {
		return token, "install_referrer"
	}
	return token, ""
}

// PostgresStat describes the connection pool for redemptions.
func (t *Tokens) PostgresStat() *pgxpool.Stat { return t.redeemer.Stat() }

// RedisStat describes the connection pool for the rate limit.
func (t *Tokens) RedisStat() *redis.PoolStats { return t.counter.PoolStats() }

// Collectors returns the metrics. Register them once.
func (t *Tokens) Collectors() []prometheus.Collector {
	tokens := func(result string, n *atomic.Int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "deeplink_edge_match_tokens_total", ConstLabels: prometheus.Labels{"result": result},
			Help: "Match tokens presented: matched; spent (presented before, or the link does not resolve); invalid (forged, malformed or too old).",
		}, func() float64 { return float64(n.Load()) })
	}
	return []prometheus.Collector{
		tokens("matched", &t.matched), tokens("spent", &t.spent), tokens("invalid", &t.invalid),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "deeplink_edge_match_limit_fallbacks_total", Help: "Requests counted in this process because Redis did not respond.",
		}, func() float64 { return float64(t.limiter.Fallbacks()) }),
		admin.RedisUp("limits", t.limiter.Up),
	}
}
