package origin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/edge/internal/matchtoken"
	"deeplink/shared/catalog"
	"deeplink/shared/postgres"
)

const (
	// retryWindow is how long the device that redeemed a token gets the same response again, in case it lost the first one.
	retryWindow = time.Minute
	// redeemConnect bounds a connection attempt. It is longer than for a click, because a redemption has no fallback, and on an
	// overloaded machine connecting can take more than a second.
	redeemConnect = 3 * time.Second
)

// Redeemer redeems match tokens. It has its own connections, so that a flood of tokens does not delay clicks. It is safe for concurrent
// use.
type Redeemer struct {
	pool *pgxpool.Pool
}

// OpenRedeemer returns a Redeemer over at most conns connections to the primary at databaseURL. It connects on first use.
func OpenRedeemer(ctx context.Context, databaseURL string, conns int32) (*Redeemer, error) {
	// A redemption that was acknowledged must survive a crash of Postgres.
	pool, err := openPool(ctx, databaseURL, conns, redeemConnect, postgres.Durable)
	if err != nil {
		return nil, err
	}
	return &Redeemer{pool: pool}, nil
}

// Close closes the connections once those in use have been given back.
func (r *Redeemer) Close() { r.pool.Close() }

// Stat says how the connections are used.
func (r *Redeemer) Stat() *pgxpool.Stat { return r.pool.Stat() }

// Redemption is the result of redeeming a token.
type Redemption struct {
	OrgKey string
	// Host is the custom host, empty on the shared one.
	Host string
	// Link has the public fields, except the URL.
	Link      catalog.Link
	MatchedAt time.Time
}

// redeem is one statement, so that the state of the link and the redemption come from one snapshot: after a deletion was acknowledged no
// token of the link can be redeemed, and a token whose link does not resolve is not marked as redeemed. The where clause is
// catalog.Judge in SQL.
//
// The statement checks the age of the token again by the clock of Postgres, which also decides when redemptions are purged. So a token
// whose row was purged cannot be redeemed again, even if the clock of an edge is wrong.
const redeem = `
with found as (
    select o.org_key, coalesce(d.host, '') as host,
           l.id, l.short_code, l.path, l.channel, l.utm_source, l.utm_medium, l.utm_campaign, l.utm_term, l.utm_content,
           l.fallback_url, l.og_title, l.og_description, l.og_image_url, l.expiry, l.params
    from links l
    join domains d on d.id = l.domain_id
    join organizations o on o.id = l.organization_id
    where l.id = $1 and not o.suspended and l.is_active and (l.expiry is null or l.expiry > $2) and d.status = 'verified'
      and $3::timestamptz between now() - $4::interval and now() + $5::interval
), spent as (
    insert into match_redemptions (nonce, link_id, device_id)
    select $6::bytea, id, $7::text from found
    on conflict (nonce) do nothing
    returning matched_at
)
select f.org_key, f.host,
       f.id::text, f.short_code, f.path, f.channel, f.utm_source, f.utm_medium, f.utm_campaign, f.utm_term, f.utm_content,
       f.fallback_url, f.og_title, f.og_description, f.og_image_url, f.expiry, f.params,
       coalesce(s.matched_at, e.matched_at), s.matched_at is not null or coalesce(e.device_id = $7 and e.matched_at > now() - $8::interval, false)
from found f
left join spent s on true
left join match_redemptions e on e.nonce = $6`

// Redeem redeems a token. It returns nil if the link does not resolve, or if the token is already redeemed, except by the same device
// within the last minute. now is the time for the check of the link's expiry. deviceID is empty if the request had none. After an error
// for which postgres.Unreachable is true the token may be redeemed; the same device may repeat the request.
func (r *Redeemer) Redeem(ctx context.Context, token matchtoken.Token, deviceID string, now time.Time) (*Redemption, error) {
	for range 2 {
		var redemption *Redemption
		var settled bool
		err := withCurrentPlan(func() (err error) {
			redemption, settled, err = r.redeemOnce(ctx, token, deviceID, now)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("redeem a match token: %w", err)
		}
		if settled {
			return redemption, nil
		}
	}
	return nil, errors.New("redeem a match token: the nonce conflicts with a redemption that does not exist")
}

// redeemOnce runs the statement once. settled is false if a concurrent transaction redeemed the token after the snapshot was taken: the
// insert has waited for that transaction, and the next snapshot shows its row.
func (r *Redeemer) redeemOnce(ctx context.Context, token matchtoken.Token, deviceID string, now time.Time) (_ *Redemption, settled bool, err error) {
	var device *string
	if deviceID != "" {
		device = &deviceID
	}
	var found Redemption
	l, og := &found.Link, catalog.OpenGraph{}
	var expiry, matchedAt *time.Time
	var params []byte
	var ours bool
	err = r.pool.QueryRow(ctx, redeem, token.Link, now, token.ClickedAt, matchtoken.Lifetime, matchtoken.Skew,
		token.Nonce[:], device, retryWindow).Scan(&found.OrgKey, &found.Host,
		&l.ID, &l.ShortCode, &l.Path, &l.Channel, &l.UTMSource, &l.UTMMedium, &l.UTMCampaign, &l.UTMTerm, &l.UTMContent,
		&l.FallbackURL, &og.Title, &og.Description, &og.ImageURL, &expiry, &params, &matchedAt, &ours)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, true, nil
	case err != nil:
		return nil, false, err
	case !ours:
		return nil, matchedAt != nil, nil
	}
	if og != (catalog.OpenGraph{}) {
		l.OG = &og
	}
	if expiry != nil {
		l.Expiry = &catalog.Time{Time: *expiry}
	}
	l.Params = params
	found.MatchedAt = *matchedAt
	return &found, true, nil
}
