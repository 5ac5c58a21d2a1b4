// What tests/compat/login.py says of logging in, as settings of KafkaJS.
'use strict';

const { readFileSync } = require('node:fs');

function login() {
  if (!process.env.COMPAT_LOGIN) {
    return {};
  }
  const { ca, mechanism, user, password, token, certificate, key } = JSON.parse(process.env.COMPAT_LOGIN);
  const shown = certificate ? { cert: readFileSync(certificate), key: readFileSync(key) } : {};
  const ssl = { ca: [readFileSync(ca)], ...shown };
  if (!mechanism) {
    return { ssl };
  }
  const sasl = token ? { oauthBearerProvider: async () => ({ value: token }) } : { username: user, password };
  return { ssl, sasl: { mechanism: mechanism.toLowerCase(), ...sasl } };
}

module.exports = { login };
