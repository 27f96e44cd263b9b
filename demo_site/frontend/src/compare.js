// The page Compare is a table that the server has written.
import "./lib/url.js"; // Share
