package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"

	"deeplink/edge/internal/origin"
	"deeplink/shared/catalog"
	"deeplink/shared/envelope"
	"deeplink/shared/matchtoken"
	"deeplink/shared/postgres"
	"deeplink/shared/ratelimit"
)

const (
	// redeemTimeout bounds what spending a token takes, the wait for a connection included.
	redeemTimeout = 5 * time.Second
	// redeemConnections are those of POST /match. Four do thousands of redemptions a second. Clicks wait for none of them: fasthttp gives
	// each connection of a client a goroutine, and the lookup of links has connections of its own.
	redeemConnections = 4
	// limitPrefix begins the names under which Redis counts requests. It is the same in every edge.
	limitPrefix = "deeplink:limit:"
)

// matches is what POST /match asks. It is safe for concurrent use.
type matches struct {
	base     string // LINK_BASE_URL
	redeemer *origin.Redeemer
	counter  redis.UniversalClient
	limiter  *ratelimit.Limiter
	// How often a token got its link, was spent or its link did not resolve, and was none of ours or too old.
	made, spent, unread atomic.Int64
}

// openMatches waits for no connection: what is down is no error here.
func openMatches(ctx context.Context, c *options) (*matches, error) {
	redeemer, err := origin.OpenRedeemer(ctx, string(c.DatabaseURL), redeemConnections)
	if err != nil {
		return nil, err
	}
	counter, err := ratelimit.Open(string(c.RedisURL), ratelimit.Connections)
	if err != nil {
		redeemer.Close()
		return nil, err
	}
	m := &matches{base: string(c.LinkBaseURL), redeemer: redeemer, counter: counter}
	m.limiter = ratelimit.New(ratelimit.NewRedis(m.counter, limitPrefix), ratelimit.Match)
	return m, nil
}

// close ends the connections and waits for those in use.
func (m *matches) close() {
	m.redeemer.Close()
	m.counter.Close()
}

// match answers POST /match: the link of a token to the first who presents it (decisions.md 4). Whatever the reason, who gets no link
// gets the same answer, and learns nothing of a token that nobody could have made: those are told apart from good ones before
// anything is asked that takes time.
func (s *server) match(ctx *fasthttp.RequestCtx) {
	if wait := s.matches.limiter.Take(context.Background(), ratelimit.Match, s.client(ctx)); wait > 0 {
		refuse(ctx, limited(wait))
		return
	}
	body := ctx.PostBody()
	if !isJSON(&ctx.Request.Header) && (len(body) > 0 || len(ctx.Request.Header.ContentType()) > 0) {
		refuse(ctx, &notJSON)
		return
	}
	claim, bad := readClaim(body)
	if bad != nil {
		refuse(ctx, invalid(bad))
		return
	}
	match, err := s.redeem(&claim, ctx.Time())
	switch {
	case err == nil:
		ctx.SetContentType(envelope.ContentType)
		ctx.SetBody(match)
	case postgres.Unreachable(err):
		refuse(ctx, &unavailable)
	default:
		s.fail(ctx, err)
	}
}

// noMatch answers every token that is spent, unknown, forged or too old, or whose link does not resolve.
var noMatch = []byte(`{"matched":false,"matchType":null,"link":null}`)

// match is the answer to a token that was good.
type match struct {
	Matched   bool               `json:"matched"`
	MatchType string             `json:"matchType"`
	Link      catalog.PublicLink `json:"link"`
	ClickedAt catalog.Time       `json:"clickedAt"`
	MatchedAt catalog.Time       `json:"matchedAt"`
}

// redeem spends the token of a claim and returns the answer.
func (s *server) redeem(c *claim, now time.Time) ([]byte, error) {
	token, by := s.token(c, now)
	if by == "" {
		s.matches.unread.Add(1)
		return noMatch, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), redeemTimeout)
	defer cancel()
	redemption, err := s.matches.redeemer.Redeem(ctx, token, c.deviceID, now)
	if err != nil {
		return nil, err
	}
	if redemption == nil {
		s.matches.spent.Add(1)
		return noMatch, nil
	}
	link := redemption.Link
	link.URL = catalog.ShortURL(s.matches.base, redemption.OrgKey, redemption.Host, link.ShortCode)
	s.matches.made.Add(1)
	return renderJSON(match{true, by, link.Public(), catalog.Time{Time: token.ClickedAt}, catalog.Time{Time: redemption.MatchedAt}})
}

// token returns the first of a claim's tokens that one of our keys made and that is not too old, and how it came; an empty word when
// there is none.
func (s *server) token(c *claim, now time.Time) (token matchtoken.Token, by string) {
	if s.tokens == nil {
		return token, ""
	}
	if token, ok := s.tokens.Read(c.clipboardToken, now); ok {
		return token, "clipboard"
	}
	if token, ok := s.tokens.Read(referredToken(c.installReferrer), now); ok {
		return token, "install_referrer"
	}
	return token, ""
}
