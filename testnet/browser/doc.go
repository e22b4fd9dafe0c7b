// Package browser tests the dashboard of real nodes in Chromium. With -screenshots DIR its tests write what they see.
package browser
