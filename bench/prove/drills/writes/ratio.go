package writes

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
)

// ratio compares creates and reads through control with the same statements through bare pgx, in interleaved rounds.
type ratio struct {
	rounds, organizations int
	span                  time.Duration
}

// requestTimeout bounds a request of a client.
const requestTimeout = 20 * time.Second

// clientsAtOnce is how many clients send at the same time, and how many connections bare pgx has.
const clientsAtOnce = 16

// The statements of control, copied: what locks and checks, and what writes.
const (
	lockSQL       = `select links from link_usage where organization_id = $1 for no key update`
	lockKeyedSQL  = `with attempt as materialized (select pg_try_advisory_xact_lock($3) and not exists (select from idempotency_keys where organization_id = $1 and scope = $2 and created_at > now() - interval '24 hours') as is_first) select u.links from attempt a, link_usage u where a.is_first and u.organization_id = $1 for no key update of u`
	storedSQL     = `select fingerprint, status, body, xid from idempotency_keys where organization_id = $1 and scope = $2 and created_at > now() - interval '24 hours'`
	orgSQL        = `select o.id, o.org_key, o.name, o.external_id, o.plan, o.suspended, o.created_at from organizations o where o.id = $1`
	configSQL     = `select exists (select from app_configs a where a.organization_id = $1 and num_nonnulls(a.ios_bundle_id, a.fallback_url) > 0)`
	domainSQL     = `select d.id, d.host, d.status, d.created_at from domains d where d.organization_id = $1 and d.host is null`
	takenSQL      = `select exists (select from links l where l.organization_id = $1 and lower(l.short_code) = lower($2) and l.id <> $3)`
	insertSQL     = `insert into links (id, organization_id, domain_id, short_code, path, fallback_url) values ($1, $2, $3, $4, '/a', 'https://example.com/a')`
	auditSQL      = `insert into audit_log (id, organization_id, actor_type, actor_id, action, target_type, target_id, detail) values ($1, $2, 'key', 'a', 'link.create', 'link', $3, '{"shortCode": "a"}')`
	changeSQL     = `select pg_current_xact_id(), coalesce(max(c.id), 0), array_agg(distinct t.tag) filter (where t.tag is not null) from changes c left join lateral unnest(c.tags) as t (tag) on true where c.xid = pg_current_xact_id()`
	storeSQL      = `insert into idempotency_keys (organization_id, scope, fingerprint, status, body, xid, is_create, is_bulk) values ($1, $2, $2, 201, $3, pg_current_xact_id(), true, false)`
	credentialSQL = `select k.id, k.display_key, k.tier, o.id, o.org_key, o.plan, o.suspended from api_keys k join organizations o on o.id = k.organization_id where k.organization_id = $1 and k.tier = 'SERVER' and (k.valid_until is null or k.valid_until > clock_timestamp())`
	readSQL       = `select l.*, o.org_key, d.host from links l join organizations o on o.id = l.organization_id join domains d on d.id = l.domain_id where l.organization_id = $1 and l.id = $2`
)

// tenantOf is an organization as bare pgx needs it, and the client of its control.
type tenantOf struct {
	fleet.Organization
	id, domain, link string
	control          *fasthttp.HostClient
}

// minCreate and minRead are the least that control may reach of bare pgx.
const (
	minCreate = 0.5
	minRead   = 0.3
)

func (d ratio) run(ctx context.Context, f *fleet.Fleet) ([]figures.Finding, error) {
	config, err := pgxpool.ParseConfig(f.Owner)
	if err != nil {
		return nil, err
	}
	config.MaxConns = clientsAtOnce
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	tenants, err := d.tenants(ctx, f, pool)
	if err != nil {
		return nil, err
	}
	var findings []figures.Finding
	for _, compared := range []struct {
		what          string
		least         float64
		control, bare func(context.Context, tenantOf) error
	}{
		{"creates", minCreate, d.create(false), bareCreate(pool, false)},
		{"creates with an Idempotency-Key", minCreate, d.create(true), bareCreate(pool, true)},
		{"reads", minRead, d.read, bareRead(pool)},
	} {
		var ratios []time.Duration // thousandths, for the median
		var control, bare float64
		for range d.rounds {
			if bare, err = d.rate(ctx, tenants, compared.bare); err != nil {
				return findings, err
			}
			if control, err = d.rate(ctx, tenants, compared.control); err != nil {
				return findings, err
			}
			ratios = append(ratios, time.Duration(1000*control/bare))
		}
		got := float64(median(ratios)) / 1000
		findings = append(findings, figures.Finding{What: fmt.Sprintf("%s compared with bare pgx (last round: %.0f and %.0f a second)", compared.what, control, bare),
			Figure: fmt.Sprintf("%.2f", got), Bound: fmt.Sprintf("≥ %.1f", compared.least), Kept: got >= compared.least, Timed: true})
	}
	return findings, nil
}

func (d ratio) tenants(ctx context.Context, f *fleet.Fleet, pool *pgxpool.Pool) (tenants []tenantOf, err error) {
	control := &fasthttp.HostClient{Addr: f.Controls[0].Addr, MaxConns: clientsAtOnce}
	for range d.organizations {
		o, err := fleet.NewOrganization(ctx, f.OperatorCommand)
		if err != nil {
			return nil, err
		}
		t := tenantOf{Organization: o, control: control}
		if err := pool.QueryRow(ctx, `select o.id, d.id from organizations o join domains d on d.organization_id = o.id where o.org_key = $1`, o.OrgKey).Scan(&t.id, &t.domain); err != nil {
			return nil, err
		}
		if err := bareCreate(pool, false)(ctx, t); err != nil {
			return nil, err
		}
		if err := pool.QueryRow(ctx, `select id from links where organization_id = $1`, t.id).Scan(&t.link); err != nil {
			return nil, err
		}
		tenants = append(tenants, t)
	}
	return tenants, nil
}

// rate returns how many calls a second clientsAtOnce clients make, each for the organizations in turn.
func (d ratio) rate(ctx context.Context, tenants []tenantOf, call func(context.Context, tenantOf) error) (float64, error) {
	var calls atomic.Int64
	group, calling := errgroup.WithContext(ctx)
	began := time.Now()
	for range clientsAtOnce {
		group.Go(func() error {
			for time.Since(began) < d.span {
				if err := call(calling, tenants[calls.Add(1)%int64(len(tenants))]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	return float64(calls.Load()) / time.Since(began).Seconds(), err
}

// create returns a create through control.
func (d ratio) create(keyed bool) func(context.Context, tenantOf) error {
	return func(_ context.Context, t tenantOf) error {
		return t.send(fasthttp.StatusCreated, func(r *fasthttp.Request) {
			r.Header.SetMethod(fasthttp.MethodPost)
			r.SetRequestURI("/links")
			r.Header.SetContentType("application/json")
			if keyed {
				r.Header.Set("Idempotency-Key", uuid.NewString())
			}
			r.SetBodyString(`{"path":"/a","fallbackUrl":"https://example.com/a"}`)
		})
	}
}

func (ratio) read(_ context.Context, t tenantOf) error {
	return t.send(fasthttp.StatusOK, func(r *fasthttp.Request) { r.SetRequestURI("/links/" + t.link) })
}

// send sends a request and expects the status. A rate limit is an error, too: it would make control look fast. The client shares the
// processors with control, so it is one that needs little of them.
func (t tenantOf) send(status int, fill func(*fasthttp.Request)) error {
	request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(request)
	defer fasthttp.ReleaseResponse(response)
	fill(request)
	request.SetHost(t.control.Addr)
	request.Header.Set("Authorization", "Bearer "+t.ServerKey)
	if err := t.control.DoTimeout(request, response, requestTimeout); err != nil {
		return err
	}
	if response.StatusCode() != status {
		return fmt.Errorf("%s %s: %d %s", request.Header.Method(), request.Header.RequestURI(), response.StatusCode(), response.Body())
	}
	return nil
}

// bareCreate returns a create as control makes it: two round trips.
func bareCreate(pool *pgxpool.Pool, keyed bool) func(context.Context, tenantOf) error {
	return func(ctx context.Context, t tenantOf) error {
		return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
			id, entry := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
			code := strings.ReplaceAll(id.String(), "-", "")
			scope := sha256.Sum256(id[:])
			var first, last pgx.Batch
			first.Queue("begin")
			if keyed {
				first.Queue(lockKeyedSQL, t.id, scope[:], int64(id.Time()))
				first.Queue(storedSQL, t.id, scope[:])
			} else {
				first.Queue(lockSQL, t.id)
			}
			first.Queue(orgSQL, t.id)
			first.Queue(configSQL, t.id)
			first.Queue(domainSQL, t.id)
			first.Queue(takenSQL, t.id, code, id)
			if err := conn.SendBatch(ctx, &first).Close(); err != nil {
				return err
			}
			last.Queue(insertSQL, id, t.id, t.domain, code)
			if keyed {
				last.Queue(storeSQL, t.id, scope[:], make([]byte, 700))
			}
			last.Queue(`set local enable_seqscan = off`)
			last.Queue(changeSQL)
			last.Queue(auditSQL, entry, t.id, id)
			last.Queue("commit")
			return conn.SendBatch(ctx, &last).Close()
		})
	}
}

func bareRead(pool *pgxpool.Pool) func(context.Context, tenantOf) error {
	return func(ctx context.Context, t tenantOf) error {
		var batch pgx.Batch
		batch.Queue(credentialSQL, t.id)
		batch.Queue(readSQL, t.id, t.link)
		return pool.SendBatch(ctx, &batch).Close()
	}
}
