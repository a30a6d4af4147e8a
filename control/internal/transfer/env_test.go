package transfer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
	"deeplink/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// testEnv is one test's database, and exports and imports of its organizations.
type testEnv struct{ *testenv.Env }

func newTestEnv(t testing.TB) *testEnv { return &testEnv{testenv.New(t)} }

func (w *testEnv) export(o store.CreatedOrganization, format string) string {
	w.T.Helper()
	var text bytes.Buffer
	out := bufio.NewWriter(&text)
	page, err := LinkWriter(out, format)
	if err != nil {
		w.T.Fatal(err)
	}
	if err := errors.Join(w.Store.ExportLinks(context.Background(), o.ID, page), out.Flush()); err != nil {
		w.T.Fatal(err)
	}
	return text.String()
}

// imports imports a file and returns the result and the rejected rows.
func (w *testEnv) imports(o store.CreatedOrganization, format, file string) (Result, string) {
	w.T.Helper()
	rows, err := OpenRows(strings.NewReader(file), format)
	if err != nil {
		w.T.Fatal(err)
	}
	var rejected bytes.Buffer
	i := &Importer{
		Store: w.Store, Actor: testenv.Actor, Report: json.NewEncoder(&rejected), Timeout: time.Minute,
		Organization: func(ctx context.Context) (catalog.Organization, error) { return w.Store.Organization(ctx, o.OrgKey) },
	}
	if err := i.Import(context.Background(), rows); err != nil {
		w.T.Fatal(err)
	}
	return i.Result, rejected.String()
}
