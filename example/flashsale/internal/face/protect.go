package face

import (
	"net"
	"net/http"
	"slices"
	"strings"
)

// Protect refuses what other sites' pages send through the browser of somebody who has this one open: requests that change
// something and come from elsewhere (http.CrossOriginProtection, by Sec-Fetch-Site and Origin), all others but a link to the page, as
// reading the events starts the shops; and hosts that are neither an address nor localhost nor one of names. Such a host is another site's,
// whose owner has made it point here (DNS rebinding), so that its pages are of the same origin. Programs send none of these
// headers and are let in by address.
func Protect(h http.Handler, names ...string) http.Handler {
	own := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !known(r.Host, names):
			http.Error(w, "this host name is not served here: use an address, or start flashsale with -names", http.StatusForbidden)
		case fromElsewhere(r) && !(r.URL.Path == "/" && r.Header.Get("Sec-Fetch-Mode") == "navigate"):
			http.Error(w, "this is for the page of this server", http.StatusForbidden)
		default:
			h.ServeHTTP(w, r)
		}
	})
	return http.NewCrossOriginProtection().Handler(own)
}

func fromElsewhere(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
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
