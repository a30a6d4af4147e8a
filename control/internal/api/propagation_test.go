package api

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"deeplink/control/internal/relay"
	"deeplink/shared/catalog"
	"deeplink/shared/feed"
)

func TestChangeIsPendingWhileAnEdgeIsUnreachable(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.serve().client(*w.Organization(catalog.Growth).ServerKey)
	links := []catalog.Link{c.CreateLink(`{"path":"/a"}`), c.CreateLink(`{"path":"/b"}`)}
	const lease = 600 * time.Millisecond
	w.DeafEdge(lease, time.Hour)

	for _, test := range []struct {
		method, path, body string
		status             int
		least              time.Duration
	}{
		{"PATCH", "/links/" + links[0].ID, `{"isActive":false}`, 200, lease},
		{"DELETE", "/links/" + links[0].ID, ``, 200, lease},
		{"DELETE", "/links/" + links[0].ID, ``, 404, lease},
		{"GET", "/links/" + links[0].ID, ``, 404, lease},
		{"PATCH", "/links/" + links[0].ID, `{}`, 404, lease},
		{"GET", "/links/" + links[0].ID + "/qr.svg", ``, 404, lease},
		{"POST", "/links", `{"path":"/c"}`, 201, 250 * time.Millisecond},
	} {
		began := time.Now()
		r := c.Do(test.method, test.path, test.body)
		took := time.Since(began)
		if r.Status != test.status || r.Header.Get(relay.Header) != "pending" || took < test.least {
			t.Errorf("%s %s: %s after %v, expected %d, pending, after %v at least", test.method, test.path, r, took, test.status, test.least)
		}
	}
	// The delete of a link that never existed does not wait.
	if r := c.Do("GET", "/links/00000000-0000-7000-8000-000000000000", ""); r.Status != http.StatusNotFound || r.Header.Get(relay.Header) != "" {
		t.Errorf("a link that never existed: %s, expected 404 without a wait", r)
	}
	// A patch that changes nothing waits for the previous change.
	first := c.Do("PATCH", "/links/"+links[1].ID, `{"path":"/new"}`)
	began := time.Now()
	again := c.Do("PATCH", "/links/"+links[1].ID, `{"path":"/new"}`)
	if took := time.Since(began); first.Header.Get(relay.Header) != "pending" || again.Header.Get(relay.Header) != "pending" || took < lease {
		t.Errorf("a patch and its repeat: %s, %s after %v, expected both pending", first, again, took)
	}
}

func TestChangeIsCompleteOnceTheEdgeAcknowledged(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Growth)
	p := w.serve()
	c := p.client(*organization.ServerKey)
	w.DeafEdge(time.Minute, time.Hour)
	heard := w.AcknowledgeHints()
	await(t, "the changes of a link whose hints Redis accepted in time", func() error {
		lost := p.Counted(t, "hints_lost_total")
		link := c.CreateLink(`{"path":"/a","shortCode":"Code"}`)
		changed, deleted := c.Do("PATCH", "/links/"+link.ID, `{"path":"/b"}`), c.Do("DELETE", "/links/"+link.ID, "")
		if p.Counted(t, "hints_lost_total") != lost {
			for len(heard) > 0 {
				<-heard
			}
			return errors.New("a hint was lost")
		}
		for _, r := range []reply{changed, deleted} {
			if r.Status != http.StatusOK || r.Header.Get(relay.Header) != "complete" {
				t.Errorf("%s, expected 200, complete", r)
			}
		}
		return nil
	})
	tag := feed.KeyTag(catalog.Key(organization.OrgKey, "", "Code"))
	for range 3 {
		select {
		case change := <-heard:
			if fmt.Sprint(change.Tags) != "["+tag+"]" {
				t.Errorf("the hint has the tags %v, expected %s", change.Tags, tag)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("a hint was not sent")
		}
	}
}
