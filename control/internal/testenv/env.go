// Package testenv is what the tests of several packages of control need: a database and a Redis with organizations and links in
// them, an HTTP client for control, an identity provider, a DNS server, and edges that do not answer. It is for tests only.
package testenv

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/devservers"
	"deeplink/shared/testkit"
)

// LinkBase is the LINK_BASE_URL of a control under test.
const LinkBase = "https://go.example.com"

// AppConfig is the app config of every organization under test.
const AppConfig = `{
	"ios": {"bundleId": "com.example.deeplink", "teamId": "ABCDE12345", "appStoreId": "123456789", "scheme": "deeplinkdemo"},
	"android": {"packageName": "com.example.deeplink", "scheme": "deeplinkdemo", "sha256CertFingerprints":
		["14:6D:E9:83:C5:73:06:50:D8:EE:B9:95:2F:34:FC:64:16:A0:83:42:E6:1D:BE:A8:8A:04:96:B2:3F:CF:44:E5"]},
	"fallbackUrl": "https://example.com/"
}`

// Env is one test's database and Redis. Pool and Store connect as the superuser.
type Env struct {
	T     testing.TB
	DB    *testkit.Database
	Redis *devservers.Redis
	Pool  *pgxpool.Pool
	Store *store.Store
}

// New returns a migrated database and an empty Redis, both for this test only.
func New(t testing.TB) *Env {
	t.Helper()
	w := &Env{T: t, DB: testkit.NewDatabase(t), Redis: testkit.NewRedis(t)}
	w.Pool = w.Open(w.DB.URL)
	w.Store = store.New(w.Pool, LinkBase)
	return w
}

// Open returns a pool on url, which closes with the test.
func (w *Env) Open(url string) *pgxpool.Pool {
	w.T.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(pool.Close)
	return pool
}

// Exec runs one SQL statement as the superuser.
func (w *Env) Exec(sql string, arguments ...any) {
	w.T.Helper()
	if _, err := w.Pool.Exec(context.Background(), sql, arguments...); err != nil {
		w.T.Fatalf("%s: %v", sql, err)
	}
}

// Actor makes changes that the audit trail does not record.
var Actor = store.SystemActor("test")

// Organization creates an organization with AppConfig. Its API keys are nil unless the plan includes them.
func (w *Env) Organization(plan catalog.Plan) store.CreatedOrganization {
	w.T.Helper()
	return w.create(store.NewOrganization{Name: "Test", Plan: &plan})
}

// APIKey replaces an API key and returns the new one. The previous key works for another hour.
func (w *Env) APIKey(organizationID string, tier apikey.Tier) string {
	w.T.Helper()
	key, err := w.Store.ReplaceKey(context.Background(), Actor, organizationID, store.Unconditional, tier, time.Hour)
	if err != nil {
		w.T.Fatal(err)
	}
	return key.RawKey
}

// Await polls check until it returns nil, and fails the test after 20 seconds. what completes "waited for".
func Await(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s: %v", what, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// LogBuffer collects log output. It is safe for concurrent use.
type LogBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Write implements io.Writer.
func (b *LogBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *LogBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// Reset removes what was written after the log was before.
func (b *LogBuffer) Reset(before string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buffer.Truncate(len(before))
}

var tenants atomic.Int64

// Tenant creates an organization that the identity provider knows by its external id, with AppConfig.
func (w *Env) Tenant(plan catalog.Plan) store.CreatedOrganization {
	w.T.Helper()
	externalID := fmt.Sprintf("org_%d", tenants.Add(1))
	return w.create(store.NewOrganization{Name: "Tenant", ExternalID: &externalID, Plan: &plan})
}

func (w *Env) create(wanted store.NewOrganization) store.CreatedOrganization {
	w.T.Helper()
	config, err := catalog.ReadAppConfig([]byte(AppConfig))
	if err != nil {
		w.T.Fatal(err)
	}
	wanted.AppConfig = &config
	created, _, err := w.Store.CreateOrganization(context.Background(), Actor, wanted)
	if err != nil {
		w.T.Fatal(err)
	}
	return created
}
