// Package chrome drives Chromium for tests. A tab acts like a person, and fails the test for every error of its pages. Use tabs one after
// the other: they share one clipboard, and a tab behind other tabs may wait for the mouse forever.
package chrome

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/chromedp/chromedp"
)

// Browser is a headless Chromium for any number of tests.
type Browser struct{ ctx context.Context }

// New starts a browser, which ends with the test. Without Chromium it skips the test, except in CI.
func New(t *testing.T) *Browser {
	t.Helper()
	path := find(t)
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.NoSandbox, // it has none for root, and in most containers
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-gpu", true),
		chromedp.Flag("disable-features", "BackForwardCache,Translate"), // the back/forward cache uses a process per page
		chromedp.Flag("disable-quic", true),
	)...)
	t.Cleanup(cancel)
	ctx, _ := chromedp.NewContext(allocator)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Error(err)
		}
	})
	return &Browser{ctx}
}

func find(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "Chromium not found; deploy/local/install.sh chromium installs it"
	if os.Getenv("CI") == "true" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}
