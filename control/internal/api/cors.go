package api

import (
	"net/http"
	"strings"

	"deeplink/shared/requestid"
	"deeplink/shared/settings"
)

// sdkPrefix begins the paths of the SDK routes, the only ones that pages of other origins may call.
const sdkPrefix = "/sdk/"

// preflightMaxAge is how long a browser may remember a preflight response, in seconds. Browsers of the Chromium family use at most two hours.
const preflightMaxAge = "7200"

// sdkOrigins are the origins whose pages may call the SDK routes. Without any, no response has a CORS header.
type sdkOrigins map[string]struct{}

func newSDKOrigins(origins []settings.Origin) sdkOrigins {
	all := make(sdkOrigins, len(origins))
	for _, origin := range origins {
		all[string(origin)] = struct{}{}
	}
	return all
}

// of returns the origin of the request if it is a listed one. A request with several lines of Origin has none.
func (o sdkOrigins) of(r *http.Request) (origin string, listed bool) {
	if lines := r.Header.Values("Origin"); len(lines) == 1 {
		_, listed = o[lines[0]]
		return lines[0], listed
	}
	return "", false
}

// share lets pages of the listed origins read the responses of the SDK routes, errors included. It never allows credentials: a client key is
// sent by the page itself, and control has no cookies here.
func (o sdkOrigins) share(next http.Handler) http.Handler {
	if len(o) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, sdkPrefix) {
			header := w.Header()
			header.Add("Vary", "Origin")
			if origin, listed := o.of(r); listed {
				header.Set("Access-Control-Allow-Origin", origin)
				header.Set("Access-Control-Expose-Headers", requestid.Header)
			}
		}
		next.ServeHTTP(w, r)
	})
}

// preflight responds to a CORS preflight request from a listed origin. It takes neither a key nor a rate-limit point: a browser cannot send the
// key, and the request that follows is counted. Any other OPTIONS request gets the 405 that it would get without CORS.
func (o sdkOrigins) preflight(x *requestState, r *http.Request) error {
	if _, listed := o.of(r); !listed || r.Header.Get("Access-Control-Request-Method") == "" {
		return refuseMethod(x, r)
	}
	header := x.Header()
	header.Set("Access-Control-Allow-Methods", http.MethodPost)
	header.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, "+requestid.Header)
	header.Set("Access-Control-Max-Age", preflightMaxAge)
	x.WriteHeader(http.StatusNoContent)
	return nil
}
