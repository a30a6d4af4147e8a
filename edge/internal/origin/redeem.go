package origin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/shared/catalog"
	"deeplink/shared/matchtoken"
	"deeplink/shared/postgres"
)

const (
	// retryWindow is how long a device that lost the answer to a token is given it again (decisions.md 4).
	retryWindow = time.Minute
	// patientConnect bounds how long a dead Postgres is waited for. It is more than a click gets: a token has nowhere else to go, and
	// on a machine with too much to do a connection can take longer than a second.
	patientConnect = 3 * time.Second
)

// Redeemer spends match tokens. Its connections are its own, so that no flood of tokens keeps a click waiting for one. It is safe
// for concurrent use.
type Redeemer struct {
	pool *pgxpool.Pool
}

// OpenRedeemer returns a Redeemer over at most conns connections to the primary at databaseURL. It connects when first asked.
func OpenRedeemer(ctx context.Context, databaseURL string, conns int32) (*Redeemer, error) {
	// A token whose redemption was answered must stay spent.
	pool, err := openPool(ctx, databaseURL, conns, patientConnect, postgres.Durable)
	if err != nil {
		return nil, err
	}
	return &Redeemer{pool: pool}, nil
}

// Close closes the connections once those in use have been given back.
func (r *Redeemer) Close() { r.pool.Close() }

// Stat says how the connections are used.
func (r *Redeemer) Stat() *pgxpool.Stat { return r.pool.Stat() }

// Redemption is what a token was spent on.
type Redemption struct {
	OrgKey string
	// Host is the custom host, empty on the shared one.
	Host string
	// Link has what is public, but for its URL.
	Link      catalog.Link
	MatchedAt time.Time
}

// redeem is one statement, so that a link is judged by the snapshot in which its token is spent: who asks after a deletion was
// answered finds no link, and a token whose link does not resolve stays unspent. Its where is catalog.Judge.
//
// The age of the token is judged once more, by the clock by which redemptions are purged: however wrong the clocks of edges are,
// none takes a token whose row is gone.
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

// Redeem spends a token. It returns nil when the token is spent already, unless by the same device within the last minute, and
// when its link does not resolve; now is the time for which an expiry is judged. deviceID is empty for a device that did not name
// itself. After an error for which postgres.Unreachable is true the token may be spent; the same device may ask again.
func (r *Redeemer) Redeem(ctx context.Context, token matchtoken.Token, deviceID string, now time.Time) (*Redemption, error) {
	for range 2 {
		var redemption *Redemption
		var settled bool
		err := again(func() (err error) {
			redemption, settled, err = r.ask(ctx, token, deviceID, now)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("redeem a match token: %w", err)
		}
		if settled {
			return redemption, nil
		}
	}
	return nil, errors.New("redeem a match token: spent by nobody")
}

// ask runs the statement once. It settles nothing when somebody else spent the token so lately that the snapshot does not show it:
// the insert has waited for that transaction, and the next snapshot will.
func (r *Redeemer) ask(ctx context.Context, token matchtoken.Token, deviceID string, now time.Time) (_ *Redemption, settled bool, err error) {
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
