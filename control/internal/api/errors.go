package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/session"
	"deeplink/control/internal/signin"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/envelope"
	"deeplink/shared/ratelimit"
	"deeplink/shared/strictjson"
)

// Errors of this package. The table problems has their responses.
var (
	errNoRoute         = errors.New("no such route")
	errMethod          = errors.New("method not allowed")
	errAbsoluteTarget  = errors.New("request target not in origin form")
	errTwoLengths      = errors.New("both Content-Length and Transfer-Encoding")
	errOldEncoding     = errors.New("Transfer-Encoding in HTTP/1.0")
	errVersion         = errors.New("not HTTP/1")
	errCredential      = errors.New("missing or invalid credential, or suspended organization")
	errTier            = errors.New("wrong key tier")
	errPlanNotSelected = errors.New("no plan selected")
	errNoAPIAccess     = errors.New("plan without api_access")
	errNoCustomDomains = errors.New("plan without custom_domains")
	errRole            = errors.New("role below the minimum")
	errUseBilling      = errors.New("paid plan not selected through checkout")
	errNoPortal        = errors.New("no identity provider set up")
	errNoCheckout      = errors.New("no billing page set up")
	errPrecondition    = errors.New("precondition failed")
	errBulkTooLarge    = errors.New("bulk body too large")

	errTwoCredentials       = errors.New("both Authorization and the session cookie")
	errCookieTwice          = errors.New("session cookie sent twice")
	errForeignOrigin        = errors.New("not from the page of the console")
	errNoOrganizationChosen = errors.New("no organization chosen in the session")
	errOrganizationChanged  = errors.New("session is for another organization")
	errNeedsCookie          = errors.New("session token in place of the session cookie")
	errSessionNotFound      = errors.New("console session not found")
)

// errRateLimited has the time after which a retry succeeds.
type errRateLimited struct{ wait time.Duration }

func (e errRateLimited) Error() string { return "rate limited" }

// problem is the response to an error: its status and the members of the envelope that depend on the error.
type problem struct {
	status                 int
	message                string
	code                   string
	quota, feature         string
	billingEndpoint        string
	details                []envelope.Detail
	challenge, causeLogged bool
	// failedIndex is the operation of a bulk request that the problem is about, otherwise nil.
	failedIndex *int
}

// problems maps errors to responses. problemOf handles errors that contain values. Every other error is a 500 without details.
var problems = []struct {
	is error
	problem
}{
	{errAbsoluteTarget, problem{status: http.StatusBadRequest, message: "The request target must be a path."}},
	{errTwoLengths, problem{status: http.StatusBadRequest, message: "The request has both Content-Length and Transfer-Encoding."}},
	{errOldEncoding, problem{status: http.StatusBadRequest, message: "HTTP/1.0 has no Transfer-Encoding."}},
	{decode.ErrUnreadable, problem{status: http.StatusBadRequest, message: "The request body could not be read."}},
	{errTwoCredentials, problem{status: http.StatusBadRequest, message: "Send either an Authorization header or the session cookie, not both."}},
	{errCookieTwice, problem{status: http.StatusBadRequest, message: "The session cookie was sent twice."}},
	{errNeedsCookie, problem{status: http.StatusBadRequest, message: "This call needs the console's session cookie."}},
	{errCredential, unauthorized},
	{signin.ErrEnded, problem{status: http.StatusUnauthorized, message: "Your session has ended. Sign in again.", code: "SESSION_ENDED", challenge: true}},
	{signin.ErrSignInAgain, problem{status: http.StatusUnauthorized, message: "Your session must be renewed. Continue with your identity provider.", code: "SESSION_RENEW", challenge: true}},
	{errNoOrganizationChosen, problem{status: http.StatusUnauthorized, message: "Choose an organization first.", code: "NO_ORGANIZATION", challenge: true}},
	{store.ErrLinkInvalid, problem{status: http.StatusUnauthorized, message: "This sign-in link is no longer valid. Ask your operator for a new one.", code: "LINK_INVALID", challenge: true}},
	{session.ErrInvalid, unauthorized},
	{store.ErrQuotaExceeded, problem{status: http.StatusPaymentRequired, message: "The plan's number of links is used up.", code: "QUOTA_EXCEEDED", quota: "links"}},
	{session.ErrNoOrganization, problem{status: http.StatusUnauthorized, message: "The session token has no active organization.", challenge: true}},
	{errPlanNotSelected, problem{status: http.StatusPaymentRequired, message: "The organization has no plan selected.", code: "PLAN_NOT_SELECTED"}},
	{store.ErrDomainQuota, problem{status: http.StatusPaymentRequired, message: fmt.Sprintf("The organization has %d custom domains, as many as it may.", store.MaxDomains), code: "QUOTA_EXCEEDED", quota: "domains"}},
	{errTier, problem{status: http.StatusForbidden, message: "This key is not for this surface."}},
	{errNoAPIAccess, problem{status: http.StatusForbidden, message: "The plan does not include access by API key.", code: "FEATURE_NOT_AVAILABLE", feature: "api_access"}},
	{errNoCustomDomains, problem{status: http.StatusForbidden, message: "The plan does not include custom domains.", code: "FEATURE_NOT_AVAILABLE", feature: "custom_domains"}},
	{errRole, problem{status: http.StatusForbidden, message: "Your role in the organization does not allow this."}},
	{errForeignOrigin, problem{status: http.StatusForbidden, message: "This call must come from the console's own page.", code: "SAME_ORIGIN_REQUIRED"}},
	{errNoRoute, problem{status: http.StatusNotFound, message: "There is nothing at this path."}},
	{store.ErrNotFound, problem{status: http.StatusNotFound, message: "Link not found."}},
	{store.ErrDomainNotFound, problem{status: http.StatusNotFound, message: "Domain not found."}},
	{store.ErrOrganizationNotFound, problem{status: http.StatusNotFound, message: "Organization not found."}},
	{errSessionNotFound, problem{status: http.StatusNotFound, message: "Session not found."}},
	{errMethod, problem{status: http.StatusMethodNotAllowed, message: "Method not allowed. See the Allow header."}},
	{decode.ErrTimeout, problem{status: http.StatusRequestTimeout, message: "The request body was not sent in time."}},
	{errOrganizationChanged, problem{status: http.StatusConflict, message: "Your session is for another organization now. Reload the page.", code: "ORGANIZATION_CHANGED"}},
	{store.ErrShortCodeTaken, problem{status: http.StatusConflict, message: "The short code is already in use in this organization."}},
	{store.ErrHostTaken, problem{status: http.StatusConflict, message: "The host is already in use."}},
	{store.ErrHostOwned, problem{status: http.StatusConflict, message: "Another organization has this host, and its TXT record is still in DNS. Remove that record first: the host then moves to you after 7 days."}},
	{store.ErrDomainInUse, problem{status: http.StatusConflict, message: "The domain still has links."}},
	{store.ErrDomainDefault, problem{status: http.StatusConflict, message: "The default domain cannot be deleted."}},
	{store.ErrLinkExternalIDTaken, problem{status: http.StatusConflict, message: "Another link of this organization has this externalId.", code: "EXTERNAL_ID_TAKEN"}},
	{store.ErrKeyInProgress, problem{status: http.StatusConflict, message: "An earlier request with this Idempotency-Key is still running. Retry after 1 second(s).", code: "IDEMPOTENCY_IN_PROGRESS"}},
	{errPrecondition, problem{status: http.StatusPreconditionFailed, message: "The link's ETag does not meet If-Match or If-None-Match. Read the link again.", code: "PRECONDITION_FAILED"}},
	{decode.ErrTooLarge, problem{status: http.StatusRequestEntityTooLarge, message: fmt.Sprintf("The request body is larger than %d bytes.", decode.MaxBody)}},
	{errBulkTooLarge, problem{status: http.StatusRequestEntityTooLarge, message: fmt.Sprintf("The request body is larger than %d bytes.", maxBulkBody)}},
	{decode.ErrMediaType, problem{status: http.StatusUnsupportedMediaType, message: "The request body must be application/json."}},
	{store.ErrKeyReused, problem{status: http.StatusUnprocessableEntity, message: "This Idempotency-Key was used for another request. Send a new key.", code: "IDEMPOTENCY_KEY_REUSED"}},
	{errUseBilling, problem{status: http.StatusUnprocessableEntity, message: "A paid plan is selected through checkout.", code: "USE_BILLING_FLOW", billingEndpoint: billingPath}},
	{store.ErrAppConfigMissing, problem{status: http.StatusPreconditionRequired, message: "Register an app config before the first link.", code: "APP_CONFIG_REQUIRED"}},
	{errVersion, problem{status: http.StatusHTTPVersionNotSupported, message: "The protocol must be HTTP/1.1 or HTTP/1.0."}},
	{errNoPortal, problem{status: http.StatusNotImplemented, message: "No identity provider is set up for the portal."}},
	{errNoCheckout, problem{status: http.StatusNotImplemented, message: "No billing page is set up."}},
	{signin.ErrUnavailable, problem{status: http.StatusServiceUnavailable, message: "The identity provider cannot be reached. You stay signed in; try again in a moment.", code: "IDENTITY_PROVIDER_UNAVAILABLE"}},
	{store.ErrRenewing, problem{status: http.StatusServiceUnavailable, message: "Your session is being renewed. Try again in a moment."}},
	{store.ErrBusy, problem{status: http.StatusServiceUnavailable, message: "Too many requests of this organization or device are waiting. Retry with backoff."}},
	{store.ErrLocked, problem{status: http.StatusServiceUnavailable, message: "What this request changes is locked by another change. Retry with backoff.", causeLogged: true}},
	{store.ErrUnavailable, unavailable},
	{session.ErrUnavailable, problem{status: unavailable.status, message: unavailable.message}}, // the key set logs the cause once; each token must not
	{context.DeadlineExceeded, unavailable},
}

var (
	unauthorized = problem{status: http.StatusUnauthorized, message: "Missing or invalid credential.", challenge: true}
	unavailable  = problem{status: http.StatusServiceUnavailable, message: "The service is not available at the moment. Retry with backoff.", causeLogged: true}
	internal     = problem{status: http.StatusInternalServerError, message: "Something went wrong on our side. Retry with backoff and quote the request id."}
)

// problemOf returns the response to err.
func problemOf(err error) problem {
	var (
		limited errRateLimited
		invalid catalog.Invalid
		body    *strictjson.Error
	)
	var failed *store.FailedOperation
	switch {
	case errors.As(err, &failed):
		p := problemOf(failed.Err)
		p.failedIndex = &failed.Index
		return p
	case errors.As(err, &limited):
		return problem{status: http.StatusTooManyRequests, message: ratelimit.Message(ratelimit.RetryAfter(limited.wait))}
	case errors.As(err, &invalid):
		details := make([]envelope.Detail, len(invalid.Fields))
		for i, field := range invalid.Fields {
			details[i] = envelope.Detail{Field: field.Field, Message: field.Message}
		}
		return validationFailed(details)
	case errors.As(err, &body):
		return validationFailed([]envelope.Detail{{Field: bodyField(body), Message: body.Error()}})
	}
	for _, row := range problems {
		if errors.Is(err, row.is) {
			return row.problem
		}
	}
	return internal
}

// bodyField returns the name of the field that an error of strictjson is about.
func bodyField(e *strictjson.Error) string { return cmp.Or(e.Field, "body") }

func validationFailed(details []envelope.Detail) problem {
	return problem{status: http.StatusBadRequest, message: "Validation failed", details: details}
}

// respondError sends the response to err, and logs the causes that an operator must see.
func (s *Server) respondError(x *requestState, r *http.Request, err error) {
	aboutBody := errors.Is(err, decode.ErrTimeout) || errors.Is(err, decode.ErrUnreadable) // net/http cancels the context for these, too
	gone := x.client.Err() != nil && !aboutBody
	if gone && x.detached == nil {
		// The read failed because the client disconnected.
		panic(http.ErrAbortHandler)
	}
	p := problemOf(err)
	switch {
	case errors.Is(err, store.ErrLocked):
		s.metrics.locked.Inc()
	case errors.Is(err, errPrecondition):
		s.metrics.preconditionsFailed.Inc()
	}
	if p.status == http.StatusInternalServerError || p.causeLogged {
		s.Log.LogAttrs(r.Context(), slog.LevelError, "request failed", append(s.logAttributes(x, r),
			slog.Int("status", p.status), slog.String("cause", err.Error()))...)
	}
	if gone {
		// The client disconnected, or closed only its sending side. Without the panic, net/http would send 200 to it.
		panic(http.ErrAbortHandler)
	}
	x.sendProblem(r, p)
}

// pathSent returns the path as the client sent it, neither decoded nor cleaned.
func pathSent(r *http.Request) string {
	switch {
	case r.URL.Opaque != "":
		return ""
	case r.URL.IsAbs(): // absolute form (RFC 9112, 3.2.2)
		return cmp.Or(r.URL.EscapedPath(), "/")
	}
	path, _, _ := strings.Cut(r.RequestURI, "?")
	return path
}

// sendProblem sends the envelope of a problem.
func (x *requestState) sendProblem(r *http.Request, p problem) {
	requestID := ""
	if x.fromClient {
		requestID = x.requestID
	}
	e := envelope.New(p.status, p.message, pathSent(r), requestID, time.Now())
	e.Details, e.Code, e.Quota, e.Feature, e.BillingEndpoint = p.details, p.code, p.quota, p.feature, p.billingEndpoint
	e.FailedIndex = p.failedIndex
	if p.challenge {
		x.Header().Set("WWW-Authenticate", "Bearer")
	}
	x.send(p.status, envelope.ContentType, e.JSON())
}
