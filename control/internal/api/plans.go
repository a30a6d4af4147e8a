package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"deeplink/control/internal/decode"
	"deeplink/shared/catalog"
)

// billingPath is the route for selecting a paid plan.
const billingPath = "/portal/billing/checkout"

// setPlan serves PUT /portal/plan, for the free plan only. Links over its quota stay and resolve; API keys and custom domains work again after an
// upgrade. The billing provider ends the payments.
func (s *Server) setPlan(x *requestState, r *http.Request, organization catalog.Organization) error {
	plan, err := readPlan(x, r)
	if err != nil {
		return err
	}
	if plan.Terms().Paid {
		return errUseBilling
	}
	organization, err = s.Store.SetPlan(r.Context(), x.actor, organization.OrgKey, &plan)
	if err != nil {
		return err
	}
	return s.showOrganization(x, r, organization)
}

// readPlan reads a body with a plan.
func readPlan(x *requestState, r *http.Request) (catalog.Plan, error) {
	body, err := readBody(x, r, decode.JSON)
	if err != nil {
		return "", err
	}
	o := decode.ReadKnown(body, "plan")
	name, ok := o.RequiredString("plan")
	plan, known := catalog.ParsePlan(name)
	if ok && !known {
		o.Add("plan", "must be free, starter, growth, scale or enterprise")
	}
	return plan, o.Err()
}

// checkoutResponse is the response of POST /portal/billing/checkout.
type checkoutResponse struct {
	URL string `json:"url"`
}

// checkOut serves POST /portal/billing/checkout.
func (s *Server) checkOut(x *requestState, r *http.Request, organization catalog.Organization) error {
	if s.Checkout == nil {
		return errNoCheckout
	}
	plan, err := readPlan(x, r)
	if err != nil {
		return err
	}
	if !plan.Terms().Paid {
		return decode.FieldError("plan", "must be one that is paid for")
	}
	return writeJSON(x, http.StatusOK, checkoutResponse{s.Checkout.address(organization.ID, plan, time.Now())})
}

const (
	// checkoutLifetime is how long a checkout URL is valid.
	checkoutLifetime = time.Hour
	// checkoutKeySize is the size of BILLING_SIGNING_KEY in bytes.
	checkoutKeySize = 32
)

// Checkout signs URLs of the billing page. The last parameter, signature, is the HMAC-SHA256 in hex of the whole URL before "&signature=", so
// that the billing provider can trust organization, plan and expires.
type Checkout struct {
	page  url.URL
	query url.Values
	key   []byte
}

// NewCheckout returns nil when page is empty. The error names the setting that is invalid.
func NewCheckout(page, key string) (*Checkout, error) {
	if page == "" {
		return nil, nil
	}
	parsed, err := url.Parse(page)
	if err != nil || parsed.Scheme != "https" && parsed.Scheme != "http" || parsed.Host == "" || parsed.User != nil || strings.Contains(page, "#") {
		return nil, errors.New("--billing-checkout-url ($BILLING_CHECKOUT_URL) must be an https or http URL without user and fragment")
	}
	query, err := url.ParseQuery(parsed.RawQuery)
	if err != nil {
		return nil, errors.New("--billing-checkout-url ($BILLING_CHECKOUT_URL) has a query that is not properly encoded")
	}
	secret, err := hex.DecodeString(key)
	if err != nil || len(secret) != checkoutKeySize {
		return nil, errors.New("--billing-signing-key ($BILLING_SIGNING_KEY) must be 64 hex digits when there is a billing page")
	}
	return &Checkout{page: *parsed, query: query, key: secret}, nil
}

// address returns the URL on which the organization can pay for the plan within checkoutLifetime.
func (c *Checkout) address(organizationID string, plan catalog.Plan, now time.Time) string {
	query := make(url.Values, len(c.query)+3)
	for name, values := range c.query {
		query[name] = values
	}
	query.Set("organization", organizationID)
	query.Set("plan", string(plan))
	query.Set("expires", strconv.FormatInt(now.Add(checkoutLifetime).Unix(), 10))
	query.Del("signature")
	page := c.page
	page.RawQuery = query.Encode()
	signed := page.String()
	mac := hmac.New(sha256.New, c.key)
	mac.Write([]byte(signed))
	return signed + "&signature=" + hex.EncodeToString(mac.Sum(nil))
}
