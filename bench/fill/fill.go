// Package fill is `bench fill`: it inserts any number of links into a database (load.go copies them, link.go generates them,
// organizations.go creates their organizations, indexes.go speeds up millions of links).
package fill

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/bench/confirm"
	"deeplink/bench/progress"
	"deeplink/shared/catalog"
)

// Command puts links into a database, faster than the API allows.
type Command struct {
	Links         int    `required:"" help:"Number of links to create."`
	Organizations int    `default:"100" help:"Number of organizations to create for them. Their sizes follow Zipf's law: with 10,000,000 links and 12,000 organizations the largest has 1,000,000."`
	Org           string `help:"orgKey of an existing organization for all of the links, instead of new organizations."`
	Keys          string `type:"path" help:"File for the paths of the short URLs, one /{orgKey}/{code} per line."`
	Database      string `required:"" env:"DATABASE_URL" help:"URL of PostgreSQL, as the owner of the tables."`
	Yes           bool   `short:"y" help:"Write into an organization other than demo without asking."`
	Rebuild       bool   `help:"Drop the search indexes first and recreate them at the end: twice as fast for millions of links. Until then searches are slow, writes wait during the recreation, and a run that is killed leaves no search indexes."`
	Audit         bool   `default:"true" negatable:"" help:"Add an audit entry for each link, as the API does."`
}

// filled is the result of a run, which is printed.
type filled struct {
	Links         int     `json:"links"`
	Organizations int     `json:"organizations"`
	Seconds       float64 `json:"seconds"`
	Largest       Tenancy `json:"largest"`
	// Unheard lists edges that may not know of the new links yet, because they did not acknowledge them.
	Unheard []string `json:"unheard"`
}

// Run prints the result as JSON.
func (c Command) Run(ctx context.Context) error {
	if !c.Yes && c.Org != confirm.DemoOrganization {
		where := "new organizations"
		if c.Org != "" {
			where = "the organization " + c.Org
		}
		if err := confirm.Write(fmt.Sprintf("put %d links into %s of the database", c.Links, where)); err != nil {
			return err
		}
	}
	result, err := c.Fill(ctx, os.Stderr)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(result)
}

// Fill creates the links. It shows its progress on terminal, if that is one.
func (c Command) Fill(ctx context.Context, terminal *os.File) (result filled, err error) {
	began := time.Now()
	if c.Links < 1 || c.Org == "" && (c.Organizations < 1 || c.Organizations > c.Links) {
		return result, errors.New("--links must be at least 1, and at least --organizations")
	}
	owner, err := pgx.Connect(ctx, c.Database)
	if err != nil {
		return result, fmt.Errorf("connect to the database: %w", err)
	}
	defer owner.Close(context.WithoutCancel(ctx))
	var tenants []*Tenancy
	if c.Org != "" {
		tenants, err = existingTenancy(ctx, owner, c.Org, c.Links)
	} else {
		tenants, err = newTenancies(ctx, owner, zipfSizes(c.Links, c.Organizations))
	}
	if err != nil {
		return result, err
	}
	keys, closeKeys, err := createKeys(c.Keys)
	if err != nil {
		return result, err
	}
	l := loader{owner: owner, tenants: tenants, keys: keys, audit: c.Audit, made: progress.Bar(c.Links, "links", terminal)}
	if err := errors.Join(c.indexed(ctx, owner, l.load), closeKeys()); err != nil {
		// For a canceled COPY, pgx reports only that the connection is closed.
		return result, errors.Join(err, ctx.Err())
	}
	result = filled{Links: c.Links, Organizations: len(tenants), Largest: *tenants[0]}
	if result.Unheard, err = l.awaitEdges(ctx); err != nil {
		return result, err
	}
	// Not ANALYZE alone: otherwise autovacuum would run after that many inserts, in the middle of a measurement.
	if _, err := owner.Exec(ctx, `vacuum (analyze)`); err != nil {
		return result, fmt.Errorf("vacuum: %w", err)
	}
	result.Seconds = time.Since(began).Seconds()
	return result, nil
}

// Organizations creates organizations with that many links each, and returns them. It shows its progress on the terminal.
func Organizations(ctx context.Context, owner *pgx.Conn, sizes []int) ([]*Tenancy, error) {
	tenants, err := newTenancies(ctx, owner, sizes)
	if err != nil {
		return nil, err
	}
	links := 0
	for _, n := range sizes {
		links += n
	}
	l := loader{owner: owner, tenants: tenants, keys: io.Discard, audit: true, made: progress.Bar(links, "links", os.Stderr)}
	return tenants, l.load(ctx)
}

// createKeys creates the file of --keys; without a path the keys are lost.
func createKeys(path string) (keys io.Writer, closeAll func() error, err error) {
	if path == "" {
		return io.Discard, func() error { return nil }, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, nil, err
	}
	buffered := bufio.NewWriterSize(file, 1<<20)
	return buffered, func() error { return errors.Join(buffered.Flush(), file.Close()) }, nil
}

// ReadKeys reads a file that --keys wrote.
func ReadKeys(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	return strings.Fields(string(text)), err
}

// zipfSizes splits n into m parts, the k-th about 1/k of the first, and each at least 1.
func zipfSizes(n, m int) []int {
	var harmonic float64
	for k := range m {
		harmonic += 1 / float64(k+1)
	}
	sizes, rest := make([]int, m), n-m
	for k := range sizes {
		sizes[k] = 1 + int(float64(n-m)/float64(k+1)/harmonic)
		rest -= sizes[k] - 1
	}
	sizes[0] += rest
	return sizes
}

var errTenancy = errors.New("the organization cannot hold these links")

const selectTenancySQL = `
	select o.id, coalesce(o.external_id, ''), o.plan, d.id,
	       exists (select from app_configs a where a.organization_id = o.id
	               and num_nonnulls(a.ios_bundle_id, a.ios_team_id, a.ios_app_store_id, a.ios_scheme, a.android_package_name,
	                                a.android_sha256_cert_fingerprints, a.android_scheme, a.fallback_url) > 0)
	from organizations o join domains d on d.organization_id = o.id and d.host is null
	where o.org_key = $1 and not o.suspended`

// existingTenancy returns an existing organization that takes n links. It refuses what the API would refuse: an organization without a plan
// or an app config has no links.
func existingTenancy(ctx context.Context, owner *pgx.Conn, key string, n int) ([]*Tenancy, error) {
	t := &Tenancy{Key: key, Links: n}
	var registered bool
	err := owner.QueryRow(ctx, selectTenancySQL, key).Scan(&t.ID, &t.ExternalID, &t.plan, &t.domain, &registered)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, fmt.Errorf("%w: no active organization has the orgKey %s", errTenancy, key)
	case err != nil:
		return nil, fmt.Errorf("look up the organization %s: %w", key, err)
	case t.plan == nil || !registered:
		return nil, fmt.Errorf("%w: it has no plan or no app config", errTenancy)
	}
	return []*Tenancy{t}, nil
}

// room returns how many more links an organization may have, and whether that is bounded at all.
func (t *Tenancy) room(has int64) (int64, bool) {
	quota := t.plan.Terms().Links
	return quota - has, quota != catalog.Unlimited
}
