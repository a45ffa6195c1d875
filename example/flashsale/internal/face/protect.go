package face

import (
	"net"
	"net/http"
	"slices"
	"strings"
)

// Protect refuses what other sites' pages send through the browser of somebody who can reach this one: requests that change
// something and come from elsewhere (http.CrossOriginProtection, by Sec-Fetch-Site and Origin), and hosts that are neither an address
// nor localhost nor one of names. Such a host is another site's, whose owner has made it point here (DNS rebinding), so that its pages
// are of the same origin. Programs send no such headers, and are let in by address.
func Protect(h http.Handler, names ...string) http.Handler {
	own := http.NewCrossOriginProtection().Handler(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !known(r.Host, names) {
			http.Error(w, "this host name is not served here: use an address, or start flashsale with -names", http.StatusForbidden)
			return
		}
		own.ServeHTTP(w, r)
	})
}

// known reports whether a Host header is an address, which no other site can have, the name of the loopback interface, or one of names.
// None at all comes from a program: browsers send one.
func known(host string, names []string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.Trim(name, "[]"), ".")
	return host == "" || net.ParseIP(name) != nil ||
		slices.ContainsFunc(append(names, "localhost"), func(n string) bool { return strings.EqualFold(n, name) })
}
