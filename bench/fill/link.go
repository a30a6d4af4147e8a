package fill

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"deeplink/shared/catalog"
)

// The words of generated links.
var (
	fillSections = []string{"sale", "products", "stories", "events", "collections", "articles", "offers", "guides"}
	fillWords    = []string{
		"spring", "linen", "jacket", "mountain", "river", "coffee", "garden", "winter", "paper", "lantern", "harbour", "orange", "velvet",
		"silver", "meadow", "island", "kettle", "bicycle", "window", "morning", "cotton", "pepper", "violet", "walnut",
	}
	fillSources  = []string{"newsletter", "instagram", "partner", "app", "google", "qr-poster"}
	fillMediums  = []string{"email", "social", "referral", "cpc", "print"}
	fillChannels = []string{"email", "instagram", "push", "qr", "affiliate", "web"}
)

// The lengths of the shortest and the longest fallback URL of a generated link.
const minFallback, maxFallback = 40, 90

// newFilledLink generates the n-th link of a run as a client would send it, with fields of usual lengths, some of which most links have.
// The link is active and expires, if at all, within a year, so that every one of them resolves.
func newFilledLink(n int, now time.Time) catalog.Link {
	slug := fillSlug(rand.IntN(2) + 1)
	l := catalog.Link{
		ShortCode: catalog.GenerateCode(), Path: fmt.Sprintf("/%s/%s-%d", oneOf(fillSections), slug, n), IsActive: true,
		FallbackURL: new(fillFallback(n)),
	}
	if sometimes(0.7) {
		l.Title = new(fmt.Sprintf("%s %s, number %d", oneOf(fillWords), slug, n))
	}
	if sometimes(0.6) {
		l.UTMSource, l.UTMMedium, l.UTMCampaign = new(oneOf(fillSources)), new(oneOf(fillMediums)), new(slug+" "+oneOf(fillSections))
		if sometimes(0.2) {
			l.UTMTerm, l.UTMContent = new(oneOf(fillWords)), new("banner-"+oneOf(fillWords))
		}
	}
	if sometimes(0.5) {
		l.Channel = new(oneOf(fillChannels))
	}
	if sometimes(0.3) {
		l.OG = &catalog.OpenGraph{
			Title: new("The " + slug + " everybody asks for"), Description: new("All that the first warm days want, chosen by hand: " + slug + "."),
			ImageURL: new(fmt.Sprintf("https://cdn.example.com/%s/%d.jpg", slug, n)),
		}
	}
	if sometimes(0.3) {
		l.Tags = fillTags()
	}
	if sometimes(0.2) {
		l.Params = json.RawMessage(fmt.Sprintf(`{"productId":%d,"ref":%q}`, n, slug))
	}
	if sometimes(0.1) {
		l.Expiry = &catalog.Time{Time: now.AddDate(0, 0, 30+rand.IntN(335)).Truncate(time.Second)}
	}
	if sometimes(0.05) {
		l.TemplateID = new("template-" + oneOf(fillSections))
	}
	return l
}

func fillSlug(words int) string {
	slug := oneOf(fillWords)
	for range words {
		slug += "-" + oneOf(fillWords)
	}
	return slug
}

// fillFallback returns a URL of minFallback to maxFallback bytes.
func fillFallback(n int) string {
	// A word and its hyphen take up to 9 bytes, the number at the end 7.
	length := minFallback + rand.IntN(maxFallback-minFallback-8)
	var url strings.Builder
	url.WriteString("https://shop.example.com/" + oneOf(fillSections) + "/" + oneOf(fillWords))
	for url.Len() < length-7 {
		url.WriteString("-" + oneOf(fillWords))
	}
	fmt.Fprintf(&url, "-%06d", n%1_000_000)
	return url.String()
}

// fillTags returns one to three different tags.
func fillTags() []string {
	tags := make([]string, 1+rand.IntN(3))
	for i, at := range rand.Perm(len(fillWords))[:len(tags)] {
		tags[i] = fillWords[at]
	}
	return tags
}

func oneOf(from []string) string { return from[rand.IntN(len(from))] }

// sometimes is true with the given probability.
func sometimes(probability float64) bool { return rand.Float64() < probability }
